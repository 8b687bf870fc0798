//! What running handlers ask the database: in the order in which they ask, between the exchanges.
#![deny(clippy::disallowed_methods)]

use std::collections::VecDeque;

use super::Engine;
use super::purpose::Purpose;
use crate::ask::Ask;
use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind};
use crate::job::RunId;
use crate::statement::{Checkpoint, History, Reply, Statement};

#[derive(Debug, Default)]
pub(super) struct Asking {
    waiting: VecDeque<(RunId, Ask)>,
}

impl Engine {
    pub(super) fn asked(&mut self, id: RunId, ask: Ask) {
        self.asking.waiting.push_back((id, ask));
    }

    /// A worker that stops without a server answers its handlers, or they would wait for ever and it for them.
    pub(super) fn refuse_hopeless_asks(&mut self) {
        if self.is_forced() && !self.work.is_up() {
            self.asking.waiting.clear();
        }
    }

    /// The next request to send.
    pub(super) fn next_ask(&mut self) -> Option<(Statement, Purpose)> {
        let (id, ask) = self.asking.waiting.pop_front()?;
        let statement = match &ask {
            Ask::Checkpoint { carry, .. } => {
                Statement::Checkpoint(Checkpoint { worker: self.rules.worker.clone(), id, carry: carry.clone() })
            }
            Ask::History { most, .. } => {
                Statement::History(History { job: id.job, most: i32::try_from(*most).unwrap_or(i32::MAX) })
            }
        };
        Some((statement, Purpose::Ask(id, ask)))
    }

    pub(super) fn ask_answered(&mut self, ask: Ask, reply: Reply) {
        match (ask, reply) {
            (Ask::Checkpoint { answerer, .. }, Reply::Checkpointed(stored)) => {
                let lost = || {
                    Error::new(
                        ErrorKind::ClaimLost,
                        "storing a checkpoint: the job is not this run's any more; stop working on it",
                    )
                };
                answerer.answer(if stored { Ok(()) } else { Err(lost()) });
            }
            (Ask::History { answerer, .. }, Reply::History(entries)) => answerer.answer(Ok(entries)),
            (ask, _) => debug_assert!(false, "the reply fits the request: {ask:?}"),
        }
    }

    /// Both requests are harmless to repeat, so one is given up only when the server refuses it for its content, or
    /// when the shutdown has been forced: then nobody has time to wait for a server that hangs.
    pub(super) fn ask_failed(&mut self, id: RunId, ask: Ask, fault: &Fault) {
        if !matches!(fault.kind, FaultKind::Statement) && !self.is_forced() {
            self.asking.waiting.push_front((id, ask));
            return;
        }
        match ask {
            Ask::Checkpoint { answerer, .. } => answerer.answer(Err(fault.to_error("storing a checkpoint"))),
            Ask::History { answerer, .. } => answerer.answer(Err(fault.to_error("reading a job's history"))),
        }
    }
}
