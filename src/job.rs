//! A job as a claim returns it: the fence of its run and the facts a handler sees.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;

use crate::task::Priority;

/// JSON text that is passed on as it was written.
pub(crate) type Json = Box<RawValue>;

/// The number of a job, given by the database when it is enqueued.
///
/// Numbers grow with time of insertion but may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub(crate) i64);

impl JobId {
    /// The number as the `id` column holds it.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

impl From<i64> for JobId {
    /// The job whose `id` column holds this number; whether there is one shows when it is asked for.
    fn from(id: i64) -> Self {
        Self(id)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One run of one job: together with the worker's identity, the fence that guards each write to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RunId {
    pub(crate) job: i64,
    /// `run_count` as the claim left it: 1 for the first run.
    pub(crate) run: i32,
}

impl RunId {
    pub(crate) fn job_id(self) -> JobId {
        JobId(self.job)
    }

    /// As users see it.
    pub(crate) fn run_count(self) -> u32 {
        // Written by hand it may be negative.
        self.run.max(0).unsigned_abs()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.run)
    }
}

/// A claimed row.
#[derive(Debug)]
pub(crate) struct ClaimedJob {
    pub(crate) id: RunId,
    pub(crate) kind: String,
    pub(crate) priority: Priority,
    pub(crate) created_at: SystemTime,
    pub(crate) visible_at: SystemTime,
    pub(crate) claimed_at: SystemTime,
    /// Failures before this run.
    pub(crate) failure_count: i32,
    pub(crate) trace: Option<Arc<str>>,
    pub(crate) payload: Json,
    /// `None`: nothing was stored yet, the carry is its type's default.
    pub(crate) carry: Option<Json>,
}

impl ClaimedJob {
    /// From when it was due until it was claimed; both instants are the database's.
    pub(crate) fn waited(&self) -> Duration {
        self.claimed_at.duration_since(self.visible_at).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_count_that_was_written_below_zero_is_shown_as_none() {
        assert_eq!(RunId { job: 1, run: 2 }.run_count(), 2);
        assert_eq!(RunId { job: 1, run: -2 }.run_count(), 0);
    }
}
