//! An enqueue over a client of the caller's, inside whatever transaction it is in.
//!
//! A conversation, as with the producer: the front-ends only carry statements and replies. What it asks for locks in the
//! order of the keys, so that two enqueues of many keys cannot wait for each other; two transactions with an enqueue for
//! each key can, and then PostgreSQL ends one of the waits after a second.
#![deny(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::mem;

use tokio_postgres::error::SqlState;

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::producer::{Bulk, KeyedCall, MAX_KEYED, Request, Response, Round, Rules};
use crate::statement::{Enqueue, EnqueueKeyed, Inside, KeyedAnswer, Reply, Texts};
use crate::{Database, Enqueued, JobId, Submit, Task};

const DOING: &str = "enqueueing in the caller's transaction";

/// How long a key is waited for that another transaction has, unless the session has a limit of its own: as long as on
/// connections of ours.
const LOCK_TIMEOUT: &str = "5s";
const NO_LOCK_TIMEOUT: &str = "0";

/// Not the client's own way to a savepoint: one that is no `Transaction`, but was told to BEGIN, would begin again, and
/// then commit what is not ours.
pub(crate) const SAVEPOINT: &str = "SAVEPOINT venturi";
pub(crate) const RELEASE: &str = "RELEASE SAVEPOINT venturi";
pub(crate) const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT venturi; RELEASE SAVEPOINT venturi";

/// What enqueues over callers' clients have in common.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    texts: Texts,
    channel: Option<String>,
    max_payload: usize,
}

impl Entrance {
    pub(crate) fn new(database: &Database, rules: Rules) -> Self {
        let schema = database.schema_name();
        let channel = rules.notify.then(|| schema.as_str().to_owned());
        Self { texts: Texts::new(schema), channel, max_payload: rules.max_payload }
    }

    pub(crate) fn texts(&self) -> &Texts {
        &self.texts
    }

    pub(crate) fn visit<'a, T: Task, I>(&self, tasks: I) -> Visit<'a, T, I::IntoIter>
    where
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        Visit::new(tasks, self.max_payload, self.channel.clone())
    }
}

pub(crate) struct Visit<'a, T: Task, I> {
    bulk: Bulk<'a, T, I>,
    /// Where workers hear of it; `None`: they are left to their polling.
    channel: Option<String>,
    /// Requests that have not been sent, and the answers to those that were.
    requests: VecDeque<Request>,
    answers: Vec<Result<Response, Error>>,
    patience: Patience,
    failure: Option<Error>,
}

/// The session's `lock_timeout`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Unknown,
    /// Not ours.
    Theirs,
    Ours,
}

impl<'a, T: Task, I> Visit<'a, T, I>
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    fn new(
        tasks: impl IntoIterator<IntoIter = I, Item = I::Item>,
        max_payload: usize,
        channel: Option<String>,
    ) -> Self {
        let bulk = Bulk::new(tasks, max_payload);
        let (requests, answers) = (VecDeque::new(), Vec::new());
        Self { bulk, channel, requests, answers, patience: Patience::Unknown, failure: None }
    }

    /// Whether the first that is to be sent has to do with a key: that takes several statements.
    pub(crate) fn has_key(&mut self) -> bool {
        self.refill();
        matches!(self.requests.front(), Some(Request::Keyed(_)))
    }

    /// What to send next; nothing when it is over.
    pub(crate) fn next(&mut self) -> Option<Inside> {
        self.refill();
        match self.requests.front() {
            _ if self.has_failed() => None,
            None if self.patience == Patience::Ours => Some(lock_timeout(LOCK_TIMEOUT, NO_LOCK_TIMEOUT)),
            None => None,
            Some(Request::Keyed(_)) if self.patience == Patience::Unknown => {
                Some(lock_timeout(NO_LOCK_TIMEOUT, LOCK_TIMEOUT))
            }
            Some(Request::Keyed(_)) => Some(self.keyed()),
            Some(_) => self.rows(),
        }
    }

    /// Asks for more when all that was asked for is answered. Where a task meets a pending job, its `merge` is called.
    fn refill(&mut self) {
        while self.requests.is_empty() && self.failure.is_none() {
            if !self.answers.is_empty() {
                self.bulk.answered(mem::take(&mut self.answers));
            }
            let Some(requests) = self.bulk.ask() else { return };
            self.requests = requests.into();
        }
    }

    fn rows(&mut self) -> Option<Inside> {
        let Some(Request::Enqueue(rows)) = self.requests.pop_front() else { return None };
        Some(Inside::Enqueue(Enqueue { calls: vec![rows], channel: self.channel.clone() }))
    }

    fn keyed(&mut self) -> Inside {
        let mut rows = Vec::new();
        while rows.len() < MAX_KEYED {
            match self.requests.pop_front() {
                Some(Request::Keyed(KeyedCall { keyed, .. })) => rows.push(keyed),
                Some(other) => {
                    self.requests.push_front(other);
                    break;
                }
                None => break,
            }
        }
        Inside::EnqueueKeyed(EnqueueKeyed { rows, wait: true, notify: self.channel.is_some() })
    }

    /// Takes the reply to what was sent last.
    pub(crate) fn answered(&mut self, reply: Result<Reply, Fault>) {
        match reply {
            Err(fault) => self.failure = Some(failed(&fault)),
            Ok(Reply::Changed(changed)) => {
                let ours = self.patience == Patience::Unknown && changed;
                self.patience = if ours { Patience::Ours } else { Patience::Theirs };
            }
            Ok(Reply::Enqueued(ids)) => {
                let ids = ids.into_iter().map(|new| new.id).collect();
                self.answers.push(Ok(Response::Enqueued(ids)));
            }
            Ok(Reply::Keyed(answers)) => {
                self.answers.extend(answers.into_iter().map(|answer| Ok(Response::Keyed(round(answer)))));
            }
            Ok(reply) => self.failure = Some(failed(&Fault::malformed(format!("{reply:?} was not asked for")))),
        }
    }

    /// Whether what was stored by now has to be taken back.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some() || self.bulk.has_failed()
    }

    /// All of the jobs, or none.
    pub(crate) fn finish(self) -> Result<Vec<Enqueued>, Error> {
        match self.failure {
            Some(error) => Err(error),
            None => self.bulk.finish_whole(),
        }
    }

    /// Of a call with one task: what became of it.
    pub(crate) fn finish_one(self) -> Result<Enqueued, Error> {
        match self.failure {
            Some(error) => Err(error),
            None => self.bulk.finish_one(),
        }
    }
}

/// What went wrong with the savepoint, or with the transaction where there was none.
pub(crate) fn savepoint_failed(error: tokio_postgres::Error) -> Error {
    failed(&Fault::from_postgres(error))
}

/// The client is in no transaction, so that one has to be begun instead of a savepoint.
pub(crate) fn is_outside(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION)
}

fn failed(fault: &Fault) -> Error {
    if !matches!((fault.kind, fault.outcome), (FaultKind::Link, OutcomeKnown::Unknown)) || fault.code.is_some() {
        return fault.to_callers_error(DOING);
    }
    let what = format!(
        "{DOING}: {}; what is in a transaction is not enqueued, without one the job may or may not be",
        fault.message
    );
    Error::new(ErrorKind::Unknown, what)
}

fn lock_timeout(from: &'static str, to: &'static str) -> Inside {
    Inside::LockTimeout { from, to }
}

/// Whoever has the key is waited for, so the answer is never that somebody is busy with it.
fn round(answer: KeyedAnswer) -> Round {
    match answer {
        KeyedAnswer::Stored { id, effect, .. } => Round::Stored(Enqueued { id: JobId(id), effect }),
        KeyedAnswer::Changed(candidate) => Round::Changed { candidate, until: None },
        KeyedAnswer::Busy => Round::Changed { candidate: None, until: None },
    }
}

#[cfg(test)]
mod tests;
