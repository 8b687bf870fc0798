//! Putting back claims whose leases ran out, pass by pass, for whoever asks a queue to.
#![deny(clippy::disallowed_methods)]

use crate::config::{DEFAULT_BACKSTOP, DEFAULT_JITTER};
use crate::observer::Event;
use crate::recovery;
use crate::statement::{Recover, Recovered, Recovery, Stale, StaleRow, Statement};
use crate::{Backoff, JobStatus};

use super::call::{CallId, Response};
use super::{Producer, Purpose};

/// What recovering expired claims did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredStale {
    /// Jobs that run again.
    pub repended: u64,
    /// Jobs that went to dead, because this was the last failure that the backstop allows.
    pub dead: u64,
    /// Jobs that somebody had asked to be cancelled, and now are.
    pub cancelled: u64,
}

impl Producer {
    /// Decides what becomes of expired claims. A queue knows no kinds, so all have the default backoff and backstop.
    pub(super) fn found_stale(&mut self, id: CallId, done: RecoveredStale, rows: Vec<StaleRow>) {
        let recovery = |row| recovery::decide(row, Backoff::default(), DEFAULT_JITTER, DEFAULT_BACKSTOP);
        if rows.is_empty() {
            self.conclude(id, Response::Recovered(done));
        } else {
            self.recovery = Some((id, done, rows.into_iter().map(recovery).collect()));
        }
    }

    /// Looks again until a pass recovers nothing.
    pub(super) fn recovered(&mut self, id: CallId, mut done: RecoveredStale, rows: Vec<Recovered>) {
        let nothing = rows.is_empty();
        for row in rows {
            self.observe(Event::Recovered { job: row.job.into(), kind: row.kind.clone().into(), status: row.status });
            match row.status {
                JobStatus::Dead => done.dead += 1,
                JobStatus::Cancelled => done.cancelled += 1,
                _ => {
                    done.repended += 1;
                    self.announce(&row.kind, row.delay);
                }
            }
        }
        if nothing {
            self.conclude(id, Response::Recovered(done));
        } else {
            self.recovery = Some((id, done, Vec::new()));
        }
    }
}

/// Writes what was found, or looks for more.
pub(super) fn next_recovery(id: CallId, done: RecoveredStale, rows: Vec<Recovery>) -> (Statement, Purpose) {
    if rows.is_empty() {
        // Nobody is called so: all claims are somebody else's.
        let stale = Stale { worker: "".into(), look_back: recovery::UNBOUNDED, most: recovery::PASS };
        (Statement::Stale(stale), Purpose::Stale(id, done))
    } else {
        (Statement::Recover(Recover { rows }), Purpose::Recover(id, done))
    }
}
