//! Everything that happens because time has passed.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use super::runs::{Abort, Row, Work};
use super::settling::Tally;
use super::{Engine, Link, Output};
use crate::cancellation::CancelReason;
use crate::fault::Fault;
use crate::job::RunId;
use crate::time::{later, sooner};

impl Engine {
    pub(super) fn pass_deadlines(&mut self, now: Instant) {
        for link in Link::ALL {
            if self.link(link).is_overdue(now) {
                self.drop_link(now, link, &Fault::deadline());
            }
        }
        self.work.pass_time(now);
        self.settle.pass_time(now);
        self.watch.pass_time(now);
        self.pass_run_deadlines(now);
        self.pass_claiming_time(now);
        self.pass_shutdown_deadlines(now);
    }

    pub(super) fn earliest_deadline(&self) -> Option<Instant> {
        let runs = self.runs.iter().map(|(_, run)| sooner(run.times_out_at, run.patience_ends_at)).fold(None, sooner);
        [
            self.work.deadline(),
            self.watch_deadline(),
            self.settle_deadline(),
            runs,
            self.settling.deadline(self.share_of_work()).filter(|_| self.work.is_idle()),
            self.lease_deadline(),
            self.claiming_deadline().filter(|_| self.work.is_idle()),
            self.shutdown_deadline(),
            self.gathers_until(self.advanced_to),
        ]
        .into_iter()
        .fold(None, sooner)
    }

    /// The handler has started: its time-out counts from here, unless the shutdown has been forced meanwhile.
    pub(super) fn started(&mut self, now: Instant, id: RunId) {
        let timeout = self.runs.get(id).and_then(|run| self.rule(run.kind)).and_then(|rule| rule.timeout);
        let counts = !self.is_forced();
        if let Some(run) = self.runs.get_mut(id) {
            run.times_out_at = timeout.filter(|_| counts).map(|timeout| later(now, timeout));
        }
    }

    fn pass_run_deadlines(&mut self, now: Instant) {
        let due: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| sooner(run.times_out_at, run.patience_ends_at).is_some_and(|at| at <= now))
            .map(|(id, _)| id)
            .collect();
        for id in due {
            self.pass_run_deadline(now, id);
        }
    }

    fn pass_run_deadline(&mut self, now: Instant, id: RunId) {
        let grace = self.rules.config.abort_grace;
        let Some(run) = self.runs.get_mut(id) else { return };
        let open = run.work == Work::Going && matches!(run.row, Row::Held | Row::Completed);
        if run.times_out_at.take_if(|at| *at <= now).is_some() && open {
            run.abort = Some(Abort::TimedOut);
            let blocking = run.blocking;
            if !blocking {
                run.patience_ends_at = Some(later(now, grace));
            }
            self.outbox.push_back(Output::Cancel(id, CancelReason::TimedOut));
            if blocking {
                self.record_timeout(id)
            } else {
                self.outbox.push_back(Output::Abort(id))
            }
            return;
        }
        if run.patience_ends_at.take_if(|at| *at <= now).is_some() && run.abort == Some(Abort::ClaimLost) {
            self.outbox.push_back(Output::Abort(id));
        }
    }

    /// A thread cannot be stopped: the failure is stored now, and the slot stays taken until the thread returns.
    fn record_timeout(&mut self, id: RunId) {
        let Some(kind) = self.runs.get(id).map(|run| run.kind) else { return };
        let limit = self.rule(kind).and_then(|rule| rule.timeout).unwrap_or_default();
        if let Some(run) = self.runs.get_mut(id) {
            run.ran = limit;
            let run = run.clone();
            let settlement = self.timed_out(id, &run);
            self.unsettle(settlement, Tally::TimedOut);
        }
    }
}
