//! Statements that stand for themselves: asked in turn with the inserts, and each answered on its own.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::statement::{CancelAnswer, Finding, Inquiry, RequeueAnswer, Statement};
use crate::time::later;

use super::call::{Call, CallId, Request, Response};
use super::{Producer, Purpose};

/// How soon to ask again about a row that somebody held: mostly that is a renewal of a few milliseconds.
const BUSY_RETRY: Duration = Duration::from_millis(50);

/// An inquiry that has been sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: CallId,
    pub(super) inquiry: Inquiry,
    pub(super) deadline: Instant,
}

impl Producer {
    pub(super) fn inquire(id: CallId, inquiry: Inquiry, deadline: Instant) -> (Statement, Purpose) {
        (Statement::Inquiry(inquiry.clone()), Purpose::Inquire(Asked { id, inquiry, deadline }))
    }

    pub(super) fn inquired(&mut self, now: Instant, asked: Asked, found: Finding) {
        if asked.inquiry.is_patient() && found.is_busy() {
            self.parked.push((later(now, BUSY_RETRY), asked.again()));
        } else {
            self.note_news(&asked.inquiry, &found);
            self.conclude(asked.id, Response::Found(found));
        }
    }

    /// Notes what workers have to be told of.
    fn note_news(&mut self, inquiry: &Inquiry, found: &Finding) {
        match found {
            Finding::Cancelled(answers) => {
                let requested = answers.iter().filter(|(_, answer)| *answer == CancelAnswer::Requested);
                self.cancelled.extend(requested.map(|(id, _)| *id));
            }
            Finding::Requeued(answers) => {
                for (_, answer) in answers {
                    if let RequeueAnswer::Requeued(kind) = answer {
                        self.announce(kind, 0.0);
                    }
                }
            }
            Finding::Switched(_) => {
                // Also when it was not paused: an earlier call may have resumed it whose answer was lost.
                if let Inquiry::ResumeKind(kind) = inquiry {
                    self.announce(kind, 0.0);
                }
            }
            _ => {}
        }
    }

    pub(super) fn inquiry_failed(&mut self, now: Instant, asked: Asked, fault: &Fault) {
        let doing = asked.inquiry.doing();
        let unknown = fault.kind == FaultKind::Link && fault.outcome == OutcomeKnown::Unknown;
        if unknown && asked.inquiry.writes() {
            let what = format!(
                "{doing}: the connection ended before the answer came ({}), so it may or may not have been done; look, \
                 or call again",
                fault.message
            );
            return self.answer(asked.id, Err(Error::new(ErrorKind::Unknown, what)));
        }
        if fault.kind == FaultKind::Transient {
            self.link.pause(now);
        }
        let passes = matches!(fault.kind, FaultKind::Link | FaultKind::Transient);
        if passes && asked.deadline > now {
            self.waiting.push_first(asked.again());
        } else {
            self.answer(asked.id, Err(fault.to_error(doing)));
        }
    }

    /// Calls whose time to be asked again has come.
    pub(super) fn unpark(&mut self, now: Instant) {
        let (due, still): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parked).into_iter().partition(|(at, _)| *at <= now);
        self.parked = still;
        for (_, call) in due {
            if call.deadline > now {
                // It has waited longer than any that waits.
                self.waiting.push_first(call);
            } else {
                let why = "somebody holds the job's row in a transaction, and nothing was changed; try again later";
                self.answer(call.id, Err(Error::new(ErrorKind::Unavailable, why)));
            }
        }
    }
}

impl Asked {
    fn again(self) -> Call {
        Call { id: self.id, request: Request::Inquire(self.inquiry), deadline: self.deadline, numbers: None }
    }
}
