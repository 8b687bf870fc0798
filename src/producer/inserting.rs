//! From waiting calls to one insert, and what becomes of each call when it succeeds or fails.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind, OutcomeKnown};

use crate::observer::Event;
use crate::statement::{CopyJobs, NewId, Numbers, Statement};

use super::bulk::MAX_BYTES;
use super::call::{Call, Insert, Request, Response};
use super::{Producer, Purpose};

/// The most rows that calls share in one insert; more calls wait for the next.
const MAX_ROWS: usize = 1_000;

/// Calls of so many rows are copied. Measured against an INSERT of the same rows, numbers reserved first: 1.0 to 1.2 times
/// as fast with 1,000 rows, 1.1 to 1.2 with 2,000, 1.5 with 10,000.
pub(super) const COPY_FROM: usize = 2_000;

impl Producer {
    /// The calls of the next insert; probes are answered on the way. None when the first call is of another kind, or
    /// has so many rows that it is copied.
    pub(super) fn gather(&mut self) -> Vec<Insert> {
        let mut inserts: Vec<Insert> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while let Some(Call { request, .. }) = self.waiting.first() {
            let (more, larger) = match request {
                Request::Probe => (0, 0),
                Request::Enqueue(jobs) if jobs.len() < COPY_FROM => (jobs.len(), jobs.bytes()),
                Request::Enqueue(_) | Request::Keyed(_) | Request::RecoverStale | Request::Inquire(_) => break,
            };
            let full = rows + more > MAX_ROWS || bytes + larger > MAX_BYTES || self.alone > 0;
            if more > 0 && !inserts.is_empty() && full {
                break;
            }
            let Some(Call { id, request, deadline, .. }) = self.waiting.pop() else { break };
            match request {
                Request::Enqueue(jobs) if jobs.len() > 0 => {
                    rows += more;
                    bytes += larger;
                    inserts.push(Insert { id, jobs, deadline });
                }
                Request::Enqueue(_) => self.answer(id, Ok(Response::Enqueued(Vec::new()))),
                Request::Probe | Request::Keyed(_) | Request::RecoverStale | Request::Inquire(_) => {
                    self.answer(id, Ok(Response::Ready));
                }
            }
        }
        self.alone = self.alone.saturating_sub(inserts.len());
        inserts
    }

    /// The numbers first, since a COPY tells none.
    pub(super) fn copying(insert: Insert, numbers: Option<Numbers>) -> (Statement, Purpose) {
        let jobs = insert.jobs.clone();
        match numbers {
            Some(numbers) => (Statement::Copy(CopyJobs { jobs, numbers }), Purpose::Enqueue(vec![insert])),
            None => (Statement::Reserve(i32::try_from(jobs.len()).unwrap_or(i32::MAX)), Purpose::Reserve(insert)),
        }
    }

    pub(super) fn reserved(&mut self, insert: Insert, numbers: Numbers) {
        let Insert { id, jobs, deadline } = insert;
        self.waiting.push_first(Call { id, request: Request::Enqueue(jobs), deadline, numbers: Some(numbers) });
    }

    pub(super) fn stored_rows(&mut self, inserts: Vec<Insert>, ids: &[NewId]) {
        let mut rest = ids;
        for insert in inserts {
            let (own, others) = rest.split_at(insert.jobs.len().min(rest.len()));
            rest = others;
            let response = Response::Enqueued(own.iter().map(|it| it.id).collect());
            if self.is_observed() {
                for (job, id) in insert.jobs.rows().iter().zip(own) {
                    self.observe(Event::Enqueued { job: id.id.into(), kind: job.kind.clone() });
                }
            }
            if !self.rules.notify {
                self.answer(insert.id, Ok(response));
                continue;
            }
            for (job, id) in insert.jobs.rows().iter().zip(own) {
                self.announce(&job.kind, id.due_in.unwrap_or_default());
            }
            self.stored.push((insert.id, response));
        }
    }

    pub(super) fn insert_failed(&mut self, now: Instant, calls: Vec<Insert>, fault: &Fault) {
        match self.aftermath(now, calls.len(), fault) {
            Aftermath::Again => self.wait_again(calls),
            Aftermath::Alone => {
                self.alone = calls.len();
                self.wait_again(calls);
            }
            Aftermath::Over => calls.iter().for_each(|call| self.answer(call.id, Err(gone_wrong(fault)))),
        }
    }

    /// What a statement that failed means for its calls.
    pub(super) fn aftermath(&mut self, now: Instant, calls: usize, fault: &Fault) -> Aftermath {
        match fault.kind {
            // Nothing was sent, so nothing was stored.
            FaultKind::Link if fault.outcome == OutcomeKnown::NotDone => Aftermath::Again,
            FaultKind::Link => Aftermath::Over,
            FaultKind::Transient => {
                self.link.pause(now);
                Aftermath::Again
            }
            _ if calls > 1 => Aftermath::Alone,
            _ => Aftermath::Over,
        }
    }

    fn wait_again(&mut self, inserts: Vec<Insert>) {
        for Insert { id, jobs, deadline } in inserts.into_iter().rev() {
            self.waiting.push_first(Call { id, request: Request::Enqueue(jobs), deadline, numbers: None });
        }
    }
}

/// What becomes of the calls of a statement that failed.
pub(super) enum Aftermath {
    /// The same once more.
    Again,
    /// One by one: one of them is at fault, the others are not.
    Alone,
    /// They get an error.
    Over,
}

/// What to tell a caller whose statement failed for good.
pub(super) fn gone_wrong(fault: &Fault) -> Error {
    if matches!(fault.kind, FaultKind::Link) {
        let what = format!(
            "the connection ended while the job was being stored ({}); it may or may not have been enqueued, enqueue it \
             again only if running it twice is harmless",
            fault.message
        );
        return Error::new(ErrorKind::Unknown, what);
    }
    fault.to_error("the job was not enqueued")
}
