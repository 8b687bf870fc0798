//! Stopping a worker.
//!
//! ```text
//! RUNNING --shutdown--> DRAINING --nothing left--> STOPPED
//!                          |
//!                          +--shutdown_timeout--> FORCED --nothing left--> STOPPED
//!                               |
//!                               |  futures:  dropped, then their jobs are released; what does not stop within
//!                               |            abort_grace is left claimed
//!                               |  threads:  not started: taken back and released
//!                               |
//!                               +--threads that have started--> GRACE --they return--> STOPPED
//!                                                                 |
//!                                                                 +--handler_grace--> WAITING_FOR_THREAD
//!                                                                       --they return--> STOPPED
//! ```
//!
//! A started thread is never released, and waited for without bound: GRACE and WAITING_FOR_THREAD only tell the
//! operator how far it has come. While one is waited for nothing is given up, futures and results that the server does
//! not take included. Leases are renewed in every state, until the handler has ended.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use super::purpose::Purpose;
use super::runs::{Abort, Row, Runs, Work};
use super::{Engine, Output};
use crate::cancellation::CancelReason;
use crate::error::{Error, ErrorKind};
use crate::job::RunId;
use crate::observer::Event;
use crate::report::{LeftClaimed, LeftReason};
use crate::time::{later, sooner};

/// How many claims in a row a spawner may throw runs of away before the worker ends with an error. They back off in
/// between, so it has some six seconds to recover.
const MAX_DISCARDED: u32 = 6;

#[derive(Debug)]
pub(super) enum Phase {
    Running,
    Draining {
        force_at: Instant,
        failure: Option<Error>,
    },
    Forced {
        /// When the grace for threads ends; `None` once that was reported.
        grace_ends_at: Option<Instant>,
        /// When futures that have not stopped and results that were not taken are given up, unless a thread is waited
        /// for.
        give_up_at: Instant,
        failure: Option<Error>,
    },
    Stopped,
}

impl Engine {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) fn is_forced(&self) -> bool {
        matches!(self.phase, Phase::Forced { .. })
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped)
    }

    /// A second request changes nothing.
    pub(super) fn shut_down(&mut self, now: Instant) {
        self.drain(now, self.rules.config.shutdown_timeout, None);
    }

    /// Nobody waits any more: the drain's time is over at once.
    pub(super) fn abandon(&mut self, now: Instant) {
        self.drain(now, Duration::ZERO, None);
        if let Phase::Draining { force_at, .. } = &mut self.phase {
            *force_at = now;
        }
    }

    /// Something that no waiting can mend: drain what runs, then end with this error.
    pub(super) fn give_up(&mut self, now: Instant, error: Error) {
        self.drain(now, self.rules.config.shutdown_timeout, Some(error));
    }

    pub(super) fn spawner_discarded(&mut self, now: Instant) {
        if self.claiming.discarded(now) >= MAX_DISCARDED {
            let what = "the spawner threw away several runs in a row without running them; \
                        check that its executor is running where `run` is polled";
            self.give_up(now, Error::new(ErrorKind::Spawner, what));
        }
    }

    fn drain(&mut self, now: Instant, timeout: Duration, failure: Option<Error>) {
        if !self.is_running() {
            return;
        }
        self.phase = Phase::Draining { force_at: later(now, timeout), failure };
        let going: Vec<RunId> = self.runs.iter().filter(|(_, run)| run.work == Work::Going).map(|(id, _)| id).collect();
        self.outbox.extend(going.into_iter().map(|id| Output::Cancel(id, CancelReason::Shutdown)));
        self.tell_state("draining");
    }

    pub(super) fn shutdown_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running | Phase::Stopped => None,
            Phase::Draining { force_at, .. } => Some(*force_at),
            Phase::Forced { grace_ends_at, give_up_at, .. } => {
                let give_up = (self.threads_going() == 0).then_some(*give_up_at);
                sooner(*grace_ends_at, give_up)
            }
        }
    }

    fn threads_going(&self) -> usize {
        self.runs.going().1
    }

    pub(super) fn pass_shutdown_deadlines(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Running | Phase::Stopped => {}
            Phase::Draining { force_at, failure } => {
                if *force_at <= now {
                    let failure = failure.take();
                    self.force(now, failure);
                }
            }
            Phase::Forced { grace_ends_at, give_up_at, .. } => {
                let grace_is_over = grace_ends_at.take_if(|at| *at <= now).is_some();
                let give_up = *give_up_at <= now;
                let threads = self.threads_going() > 0;
                if grace_is_over && threads {
                    self.tell_state("waiting_for_thread");
                }
                if give_up && !threads {
                    self.leave_what_is_left();
                }
            }
        }
    }

    fn force(&mut self, now: Instant, failure: Option<Error>) {
        let threads = self.threads_going() > 0;
        let config = &self.rules.config;
        let grace = config.handler_grace(config.timeout);
        let give_up_at = later(now, config.abort_grace);
        let grace_ends_at = threads.then(|| later(now, grace));
        self.phase = Phase::Forced { grace_ends_at, give_up_at, failure };
        self.tell_state("forced");
        if threads && !grace.is_zero() {
            self.tell_state("grace");
        }
        let mut aborts = Vec::new();
        for (id, run) in self.runs.iter_mut().filter(|(_, run)| run.work == Work::Going) {
            // From here on a started thread keeps its row until it returns, and a future's time-out comes too late.
            run.times_out_at = None;
            if !run.blocking {
                run.abort = run.abort.or(Some(Abort::Shutdown));
            }
            aborts.push(Output::Abort(id));
        }
        self.outbox.extend(aborts);
    }

    /// A thread returned late: give its result as long as any other.
    pub(super) fn extend_giving_up(&mut self, now: Instant) {
        let until = later(now, self.rules.config.abort_grace);
        if let Phase::Forced { give_up_at, .. } = &mut self.phase {
            *give_up_at = until.max(*give_up_at);
        }
    }

    fn leave_what_is_left(&mut self) {
        let runs = std::mem::replace(&mut self.runs, Runs::new(self.rules.kinds.len()));
        for (id, run) in runs.iter() {
            match run.row {
                Row::Held => self.leave(id, Some(run.kind), LeftReason::NotStopped),
                // Its job is done, whatever it is still at.
                Row::Completed => self.report.settled += 1,
                Row::Unsettled if run.spoke_late => self.report.late += 1,
                Row::Unsettled | Row::Done | Row::Gone => {}
            }
        }
        for (id, kind) in self.settling.drain() {
            self.leave(id, kind, LeftReason::NotStored);
        }
        self.leases.doubt_no_more();
        self.watching.announce_no_more();
        self.work.forget();
        self.settle.forget();
        self.watch.forget();
    }

    fn leave(&mut self, id: RunId, kind: Option<usize>, reason: LeftReason) {
        let kind = self.kind_name(kind);
        self.report.left_claimed.push(LeftClaimed { job: crate::JobId(id.job), kind, reason });
        let reason = if reason == LeftReason::NotStopped { "not stopped" } else { "not stored" };
        self.observe(Event::LeftClaimed { job: id.job_id(), run: id.run_count(), kind, reason });
    }

    fn tell_state(&mut self, state: &'static str) {
        let (asynchronous, blocking) = self.runs.going();
        self.observe(Event::ShutdownState { state, asynchronous, blocking });
    }

    pub(super) fn stop_when_done(&mut self) {
        if self.is_running() || self.is_stopped() || self.has_business() {
            return;
        }
        let failure = match std::mem::replace(&mut self.phase, Phase::Stopped) {
            Phase::Draining { failure, .. } | Phase::Forced { failure, .. } => failure,
            Phase::Running | Phase::Stopped => None,
        };
        self.tell_state("stopped");
        #[cfg(feature = "testing")]
        {
            self.report.ran = self.progress.take_ran();
        }
        let result = failure.map_or_else(|| Ok(std::mem::take(&mut self.report)), Err);
        self.outbox.push_back(Output::Stopped(result));
    }

    /// Whether stopping now would leave something undone that can still be done.
    fn has_business(&self) -> bool {
        let claiming = matches!(self.work.purpose(), Some(Purpose::Exchange(_)));
        let announcing = self.watch.is_up()
            && (self.watching.has_announcements() || matches!(self.watch.purpose(), Some(Purpose::Notify(_))));
        !self.runs.is_empty() || !self.settling.is_empty() || claiming || self.leases.in_doubt() || announcing
    }
}
