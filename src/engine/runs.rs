//! The runs that hold a slot.
//!
//! A slot is free again when its run's row is out of the worker's hands **and** its handler has stopped, whichever
//! comes last: a thread whose job has timed out still works, and a result that the server has not taken still counts.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::job::RunId;

#[derive(Debug)]
pub(super) struct Runs {
    runs: BTreeMap<RunId, Run>,
    per_kind: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) kind: usize,
    pub(super) blocking: bool,
    /// Failures before this run.
    pub(super) failure_count: i32,
    pub(super) work: Work,
    pub(super) row: Row,
    /// A later run of its job was claimed here, and given back.
    pub(super) superseded: bool,
    /// It timed out, and its thread has returned before that was stored.
    pub(super) spoke_late: bool,
    pub(super) abort: Option<Abort>,
    /// Set when the handler starts, if its kind has a time-out.
    pub(super) times_out_at: Option<Instant>,
    /// When an abort is given up, or a lost claim's cooperative wait ends.
    pub(super) patience_ends_at: Option<Instant>,
    /// When it was handed out to be started.
    pub(super) started_at: Instant,
    /// From there until it stopped or timed out.
    pub(super) ran: Duration,
}

/// What the handler is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Going,
    Stopped,
}

/// Whose the row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Claimed by this run, which has no result yet.
    Held,
    /// Claimed by this run, whose result waits to be taken.
    Unsettled,
    /// Completed by the handler itself, in a transaction of its own, as far as the server says; its result is to come.
    Completed,
    /// As `Completed`, and counted: whatever the handler still returns changes nothing.
    Done,
    /// No longer this run's: settled, or lost.
    Gone,
}

impl Row {
    /// Whether there is nothing to be stored any more.
    fn is_out_of_hand(self) -> bool {
        matches!(self, Self::Done | Self::Gone)
    }
}

/// Why a run was told to stop for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abort {
    Shutdown,
    TimedOut,
    ClaimLost,
}

impl Runs {
    pub(super) fn new(kinds: usize) -> Self {
        Self { runs: BTreeMap::new(), per_kind: vec![0; kinds] }
    }

    pub(super) fn insert(&mut self, id: RunId, run: Run) {
        if let Some(count) = self.per_kind.get_mut(run.kind) {
            *count += 1;
        }
        let twin = self.runs.insert(id, run);
        debug_assert!(twin.is_none(), "a run is claimed once");
    }

    pub(super) fn get(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.get_mut(&id)
    }

    /// Gives the slot back if nothing holds it any more; says which kind got room.
    pub(super) fn release_if_done(&mut self, id: RunId) -> Option<usize> {
        let run = self.runs.get(&id)?;
        if run.work != Work::Stopped || !run.row.is_out_of_hand() {
            return None;
        }
        self.remove(id).map(|run| run.kind)
    }

    fn remove(&mut self, id: RunId) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        if let Some(count) = self.per_kind.get_mut(run.kind) {
            debug_assert!(*count > 0, "a kind's count covers its runs");
            *count = count.saturating_sub(1);
        }
        Some(run)
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether a run of this job, of whatever number, still holds a slot.
    pub(super) fn hold(&self, job: i64) -> bool {
        self.of_job(job).next().is_some()
    }

    pub(super) fn of_job(&self, job: i64) -> impl Iterator<Item = (RunId, &Run)> {
        let of_job = RunId { job, run: i32::MIN }..=RunId { job, run: i32::MAX };
        self.runs.range(of_job).map(|(id, run)| (*id, run))
    }

    pub(super) fn of_kind(&self, kind: usize) -> usize {
        self.per_kind.get(kind).copied().unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RunId, &Run)> {
        self.runs.iter().map(|(id, run)| (*id, run))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (RunId, &mut Run)> {
        self.runs.iter_mut().map(|(id, run)| (*id, run))
    }

    /// A later run of this job was claimed. It is not again until its earlier runs are over.
    pub(super) fn supersede(&mut self, job: i64) {
        self.iter_mut().filter(|(id, _)| id.job == job).for_each(|(_, run)| run.superseded = true);
    }

    /// The jobs whose handler may still be at work although their rows are no longer this worker's: claiming one of
    /// them again would run it twice at once.
    pub(super) fn zombies(&self) -> Vec<i64> {
        self.iter()
            .filter(|(_, run)| run.superseded || run.row == Row::Completed || run.row.is_out_of_hand())
            .map(|(id, _)| id.job)
            .collect()
    }

    /// Handlers still going, by kind of handler: futures, threads.
    pub(super) fn going(&self) -> (usize, usize) {
        let going = self.runs.values().filter(|run| run.work == Work::Going);
        going.fold(
            (0, 0),
            |(futures, threads), run| {
                if run.blocking { (futures, threads + 1) } else { (futures + 1, threads) }
            },
        )
    }
}
