//! A worker's run that ends by itself, as tests want it.
#![deny(clippy::disallowed_methods)]
#![cfg_attr(
    not(any(feature = "blocking", feature = "async")),
    allow(unreachable_pub, reason = "only what a front-end runs is shown")
)]

use std::sync::Arc;

use crate::JobId;
use crate::journal::JournalEvent;
#[cfg(any(feature = "blocking", feature = "async"))]
use crate::{JobFilter, JobInfo, JobStatus};

/// How far a worker goes before it stops by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stint {
    /// How many jobs it claims at most; `None`: all that are due.
    pub(crate) most: Option<usize>,
    /// Jobs that it leaves alone.
    pub(crate) skip: Arc<[i64]>,
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl Stint {
    /// The next job, and no other.
    pub(crate) fn next() -> Self {
        Self { most: Some(1), ..Self::default() }
    }

    /// This job, and none of the others that are pending.
    pub(crate) fn only(id: JobId, pending: &[JobInfo]) -> Self {
        let skip = pending.iter().map(|job| job.id.get()).filter(|other| *other != id.get()).collect();
        Self { skip, ..Self::next() }
    }
}

/// What to ask for, to leave it alone.
#[cfg(any(feature = "blocking", feature = "async"))]
pub(crate) fn pending() -> JobFilter {
    JobFilter::new().status(JobStatus::Pending).without_content()
}

/// A run whose result was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// The job.
    pub job: JobId,
    /// Which run of it, counted from 1.
    pub run: u32,
    /// The job's kind.
    pub kind: &'static str,
    /// What became of the job.
    pub outcome: JournalEvent,
}
