//! Runs whose jobs somebody asked to end.
//!
//! The row says so; a notification only says that it is time to look. So one read of the named rows that run here follows
//! it, over the watch link, and a notification about jobs of other workers costs nothing. One that is lost costs time: the
//! next renewal tells as well. A worker that hears no notifications looks as often as it polls for jobs.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::purpose::Purpose;
use super::runs::{Row, Work};
use super::{Engine, Output};
use crate::cancellation::CancelReason;
use crate::job::RunId;
use crate::notification::Cancelled;
use crate::statement::{Inquiry, Statement};
use crate::time::later;

/// How many jobs that do not run here are remembered while a claim is on its way, whose reply may bring them. More are
/// left to the next renewal.
const MAX_EARLY: usize = 1_000;

/// The shortest time between two looks of a worker that hears no notifications, however often it polls for jobs: as long
/// as a notified one may take.
const MIN_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Cancelling {
    /// Running jobs to look at.
    named: BTreeSet<i64>,
    /// Jobs that were named while a claim was in flight and did not run here yet.
    early: BTreeSet<i64>,
    /// When a worker that hears no notifications looks at all that runs here; nothing while nothing does.
    look_at: Option<Instant>,
}

impl Cancelling {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }
}

impl Engine {
    pub(super) fn heard_cancelled(&mut self, cancelled: &Cancelled) {
        match cancelled {
            Cancelled::Any => self.look_for_cancellations(),
            Cancelled::These(ids) => ids.iter().for_each(|id| self.heard_cancelled_job(*id)),
        }
    }

    fn heard_cancelled_job(&mut self, job: i64) {
        let claiming = matches!(self.work.purpose(), Some(Purpose::Exchange(sent)) if sent.claim.is_some());
        if self.runs.hold(job) {
            self.cancelling.named.insert(job);
        } else if claiming && self.cancelling.early.len() < MAX_EARLY {
            self.cancelling.early.insert(job);
        }
    }

    /// Notifications may have been missed: look at everything that runs here.
    pub(super) fn look_for_cancellations(&mut self) {
        let going = self.runs.iter().filter(|(_, run)| run.work == Work::Going && run.row == Row::Held);
        let jobs: Vec<i64> = going.map(|(id, _)| id.job).collect();
        self.cancelling.named.extend(jobs);
    }

    /// No claim is in flight any more: what was named early runs here by now, or never will.
    pub(super) fn settle_early_cancellations(&mut self) {
        for job in std::mem::take(&mut self.cancelling.early) {
            if self.runs.hold(job) {
                self.cancelling.named.insert(job);
            }
        }
    }

    /// A run has begun, whose cancellation nobody may tell this worker of.
    pub(super) fn watch_for_cancellations(&mut self, now: Instant) {
        if !self.rules.listen && self.cancelling.look_at.is_none() {
            self.cancelling.look_at = Some(later(now, self.rules.config.poll_max.max(MIN_LOOK)));
        }
    }

    /// The look that is due.
    pub(super) fn next_cancellations(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        if self.cancelling.look_at.take_if(|at| *at <= now).is_some() && !self.runs.is_empty() {
            self.look_for_cancellations();
            self.watch_for_cancellations(now);
        }
        let named = std::mem::take(&mut self.cancelling.named);
        let of_named = named.into_iter().flat_map(|job| self.runs.of_job(job));
        let held = of_named.filter(|(_, run)| run.work == Work::Going && run.row == Row::Held);
        let runs: Vec<RunId> = held.map(|(id, _)| id).collect();
        if runs.is_empty() {
            return None;
        }
        let worker = self.rules.worker.clone();
        let statement = Statement::Inquiry(Inquiry::Cancellations { worker, runs: runs.clone() });
        Some((statement, Purpose::Cancellations(runs)))
    }

    pub(super) fn cancellations_failed(&mut self, runs: &[RunId]) {
        self.cancelling.named.extend(runs.iter().map(|id| id.job));
    }

    /// The rows say so.
    pub(super) fn cancel_runs(&mut self, runs: &[RunId]) {
        for id in runs {
            if self.runs.get(*id).is_some_and(|run| run.work == Work::Going) {
                self.outbox.push_back(Output::Cancel(*id, CancelReason::Requested));
            }
        }
    }
}
