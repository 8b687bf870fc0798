//! What cancelling, requeueing and cleaning up did.
#![deny(clippy::disallowed_methods)]

use crate::JobId;
use crate::job_info::JobStatus;

/// What cancelling a job did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelOutcome {
    /// It was pending and is cancelled now.
    Cancelled,
    /// It is running: its context is cancelled, and it ends as completed if it completes, else as cancelled.
    Requested,
    /// It had ended before.
    AlreadyFinished,
    /// There is no such job.
    NotFound,
}

/// What requeueing a job did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequeueOutcome {
    /// It is pending again.
    Requeued,
    /// It is pending or running anyway; nothing was changed.
    NotFinished,
    /// This other job is pending with the same kind and dedup key; nothing was changed.
    Conflict(JobId),
    /// There is no such job.
    NotFound,
}

/// How many jobs [`cancel_all`](crate::blocking::Queue::cancel_all) has cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelledAll {
    /// Jobs that were pending and are cancelled now.
    pub cancelled: u64,
    /// Running jobs whose contexts are cancelled.
    pub requested: u64,
    /// Jobs that somebody else held at that moment; call again.
    pub skipped: u64,
}

/// How many jobs [`requeue_all`](crate::blocking::Queue::requeue_all) has made pending again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequeuedAll {
    /// Jobs that are pending again.
    pub requeued: u64,
    /// Jobs that stay as they are, because another one is pending with the same kind and dedup key.
    pub conflicts: u64,
    /// Jobs that somebody else held at that moment; call again.
    pub skipped: u64,
}

/// How many jobs a cleanup has deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleaned {
    /// Completed jobs.
    pub completed: u64,
    /// Cancelled jobs.
    pub cancelled: u64,
    /// Dead jobs.
    pub dead: u64,
}

impl Cleaned {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.completed + self.cancelled + self.dead
    }

    pub(crate) fn count(&mut self, status: JobStatus, jobs: u64) {
        match status {
            JobStatus::Completed => self.completed += jobs,
            JobStatus::Cancelled => self.cancelled += jobs,
            JobStatus::Dead => self.dead += jobs,
            JobStatus::Pending | JobStatus::Claimed => debug_assert!(false, "only finished jobs are deleted"),
        }
    }
}
