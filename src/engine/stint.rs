//! Ending by itself, once nothing is left to do.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use super::Engine;
use crate::observer::Event;
use crate::stint::{Ran, Stint};

/// How far the stint has come, if the worker has one.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Jobs that were claimed.
    claimed: usize,
    /// Whether a survey was asked for since the last handler ended. Without one, what that handler has enqueued would be
    /// missed, as nobody need have been told of it.
    confirmed: bool,
    ran: Vec<Ran>,
}

impl Progress {
    pub(super) fn claimed(&mut self, jobs: usize) {
        self.claimed = self.claimed.saturating_add(jobs);
    }

    pub(super) fn take_ran(&mut self) -> Vec<Ran> {
        std::mem::take(&mut self.ran)
    }

    pub(super) fn note(&mut self, event: &Event) {
        if let Event::Settled { job, run, kind, outcome, .. } = event {
            self.ran.push(Ran { job: *job, run: *run, kind, outcome: *outcome });
        }
    }
}

impl Engine {
    /// How many jobs may still be claimed.
    pub(super) fn stint_left(&self) -> usize {
        let most = self.rules.config.stint.as_ref().and_then(|stint| stint.most);
        most.map_or(usize::MAX, |most| most.saturating_sub(self.progress.claimed))
    }

    /// Jobs that are to be left alone.
    pub(super) fn stint_skips(&self) -> &[i64] {
        self.rules.config.stint.as_ref().map_or(&[], |stint: &Stint| &stint.skip)
    }

    /// Shuts down when nothing is ready, due or claimed any more.
    pub(super) fn end_stint(&mut self, now: Instant) {
        if self.rules.config.stint.is_none() || !self.is_running() {
            return;
        }
        if !self.runs.is_empty() || !self.settling.is_empty() {
            self.progress.confirmed = false;
            return;
        }
        if !self.work.is_idle() {
            return;
        }
        if self.stint_left() == 0 {
            self.shut_down(now);
        } else if self.claiming.is_quiet() {
            if self.progress.confirmed {
                self.shut_down(now);
            } else {
                self.progress.confirmed = true;
                self.claiming.survey_again();
                self.drive_work(now);
            }
        }
    }
}
