//! From waiting calls to one insert, and what becomes of each call when it succeeds or fails.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind, OutcomeKnown};

use super::Producer;
use super::batch::{MAX_BYTES, MAX_ROWS, size};
use super::call::{Call, Insert, Request, Response};

impl Producer {
    /// The calls of the next insert; probes are answered on the way.
    pub(super) fn gather(&mut self) -> Vec<Insert> {
        let mut inserts: Vec<Insert> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while let Some(Call { request, .. }) = self.waiting.front() {
            let (more, larger) = match request {
                Request::Probe => (0, 0),
                Request::Enqueue(jobs) => (jobs.len(), jobs.iter().map(size).sum()),
                Request::RecoverStale => break,
            };
            let full = rows + more > MAX_ROWS || bytes + larger > MAX_BYTES || self.alone > 0;
            if more > 0 && !inserts.is_empty() && full {
                break;
            }
            let Some(Call { id, request, deadline }) = self.waiting.pop_front() else { break };
            match request {
                Request::Enqueue(jobs) if !jobs.is_empty() => {
                    rows += more;
                    bytes += larger;
                    inserts.push(Insert { id, jobs, deadline });
                }
                Request::Enqueue(_) => self.answer(id, Ok(Response::Enqueued(Vec::new()))),
                Request::Probe | Request::RecoverStale => self.answer(id, Ok(Response::Ready)),
            }
        }
        self.alone = self.alone.saturating_sub(inserts.len());
        inserts
    }

    pub(super) fn stored_rows(&mut self, inserts: Vec<Insert>, ids: Vec<i64>) {
        let mut ids = ids.into_iter();
        for insert in inserts {
            for job in &insert.jobs {
                self.announce(job.kind.to_string(), job.delay);
            }
            let own = ids.by_ref().take(insert.jobs.len()).collect();
            self.stored.push((insert.id, Response::Enqueued(own)));
        }
    }

    pub(super) fn insert_failed(&mut self, now: Instant, calls: Vec<Insert>, fault: &Fault) {
        match fault.kind {
            // Nothing was sent, so nothing was stored.
            FaultKind::Link if fault.outcome == OutcomeKnown::NotDone => self.wait_again(calls),
            FaultKind::Link => {
                for call in calls {
                    let error = Error::new(
                        ErrorKind::Unknown,
                        format!(
                            "the connection ended while the job was being stored ({}); it may or may not have been \
                             enqueued, enqueue it again only if running it twice is harmless",
                            fault.message
                        ),
                    );
                    self.answer(call.id, Err(error));
                }
            }
            FaultKind::Transient => {
                self.link.pause(now);
                self.wait_again(calls);
            }
            _ if calls.len() > 1 => {
                self.alone = calls.len();
                self.wait_again(calls);
            }
            _ => {
                for call in calls {
                    self.answer(
                        call.id,
                        Err(not_enqueued(&format!("the server refused it: {}", fault.message), fault)),
                    );
                }
            }
        }
    }

    fn wait_again(&mut self, inserts: Vec<Insert>) {
        for Insert { id, jobs, deadline } in inserts.into_iter().rev() {
            self.waiting.push_front(Call { id, request: Request::Enqueue(jobs), deadline });
        }
    }
}

fn not_enqueued(why: &str, fault: &Fault) -> Error {
    let error = Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}"));
    match &fault.source {
        Some(source) => error.with_postgres(source.clone()),
        None => error,
    }
}
