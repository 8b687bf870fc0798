//! Deleting finished jobs when they are old enough, if the worker is built to.
//!
//! One small batch at a time, over the watch link, so that no claim and no settlement waits for it; a renewal or a
//! notification waits for some milliseconds at most, and goes before the next batch. Rows that somebody holds are
//! skipped, so any number of workers can sweep at once and share the work.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use super::purpose::Purpose;
use super::{Engine, Rules};
use crate::backoff::mix;
use crate::job_info::JobStatus;
use crate::statement::{CleanupBatch, Deleted, Inquiry, Statement};
use crate::time::later;

/// How long a worker rests when nothing old enough was left, on average. With several workers one of them comes sooner.
const REST: Duration = Duration::from_secs(60);

/// How much shorter the first rest is, so that workers which never live for a minute sweep as well.
const SOONER: u32 = 8;

/// Between two batches while there is more to do: a worker deletes at most some 10,000 jobs a second.
const BREATH: Duration = Duration::from_millis(50);

/// Jobs of one batch; measured: some 5 ms. Halved whenever a batch fails, which may be for its size: a job can have any
/// number of journal entries.
const BATCH: i32 = 500;

#[derive(Debug)]
pub(super) struct Sweeping {
    ages: Vec<(JobStatus, Duration)>,
    /// Which of the ages is next.
    turn: usize,
    /// How far the batches of this turn have come, in seconds since 1970.
    from: f64,
    most: i32,
    next_at: Option<Instant>,
    /// Each rest is of another length, so that workers that start together do not sweep together for ever.
    seed: u64,
}

impl Sweeping {
    pub(super) fn new(rules: &Rules, now: Instant) -> Self {
        let ages: Vec<_> = rules.config.retention.ages().collect();
        let mut sweeping =
            Self { ages, turn: 0, from: f64::NEG_INFINITY, most: BATCH, next_at: None, seed: rules.seed };
        if !sweeping.ages.is_empty() {
            sweeping.rest(now, SOONER);
        }
        sweeping
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_at
    }

    /// Between half and one and a half times the average.
    fn rest(&mut self, now: Instant, sooner: u32) {
        self.seed = mix(self.seed);
        let part = u32::try_from(self.seed % 1_024).unwrap_or(0);
        self.next_at = Some(later(now, (REST / 2 + REST * part / 1_024) / sooner));
    }

    fn batch(&self) -> Option<CleanupBatch> {
        let (status, age) = *self.ages.get(self.turn)?;
        Some(CleanupBatch { status, age: age.as_secs_f64(), from: self.from, most: self.most })
    }

    /// The next status, or a rest after the last one.
    fn turn(&mut self, now: Instant) {
        self.from = f64::NEG_INFINITY;
        self.turn += 1;
        if self.turn < self.ages.len() {
            self.next_at = Some(later(now, BREATH));
        } else {
            self.turn = 0;
            self.rest(now, 1);
        }
    }
}

impl Engine {
    /// The batch that is due.
    pub(super) fn next_sweep(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        if !self.is_running() {
            return None;
        }
        self.sweeping.next_at.take_if(|at| *at <= now)?;
        let batch = self.sweeping.batch()?;
        Some((Statement::Inquiry(Inquiry::Cleanup(batch)), Purpose::Sweep))
    }

    pub(super) fn swept(&mut self, now: Instant, deleted: Deleted) {
        let sweeping = &mut self.sweeping;
        // As much as was asked for: no other batch has been sent since.
        let full = deleted.jobs >= u64::from(sweeping.most.unsigned_abs());
        sweeping.most = sweeping.most.saturating_mul(2).min(BATCH);
        match deleted.reached.filter(|_| full) {
            Some(reached) => {
                sweeping.from = reached;
                sweeping.next_at = Some(later(now, BREATH));
            }
            None => sweeping.turn(now),
        }
    }

    /// Whatever it was: later, and less.
    pub(super) fn sweep_failed(&mut self, now: Instant) {
        self.sweeping.most = (self.sweeping.most / 2).max(1);
        self.sweeping.rest(now, 1);
    }
}
