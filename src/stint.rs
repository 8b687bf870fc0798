//! A worker's run that ends by itself, as tests want it.
#![deny(clippy::disallowed_methods)]
#![cfg_attr(
    not(any(feature = "blocking", feature = "async")),
    allow(unreachable_pub, reason = "only what a front-end runs is shown")
)]

use std::sync::Arc;

use crate::JobId;
use crate::journal::JournalEvent;

/// How far a worker goes before it stops by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stint {
    /// How many jobs it claims at most; `None`: all that are due.
    pub(crate) most: Option<usize>,
    /// Jobs that it leaves alone.
    pub(crate) skip: Arc<[i64]>,
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
