//! How much goes into one statement.
#![deny(clippy::disallowed_methods)]

use std::iter;

use crate::error::{Error, ErrorKind};
use crate::statement::NewJob;

/// The most rows that one statement inserts; more calls wait for the next.
pub(super) const MAX_ROWS: usize = 1_000;

/// The most payload that one statement inserts: larger ones save nothing, and hold memory on both sides.
pub(super) const MAX_BYTES: usize = 8_000_000;

/// Cuts off as many rows as one statement takes, until none is left.
pub(crate) fn batches(jobs: Vec<NewJob>) -> impl Iterator<Item = Vec<NewJob>> {
    let mut jobs = jobs.into_iter().peekable();
    iter::from_fn(move || {
        let mut batch = vec![jobs.next()?];
        let mut bytes = batch.iter().map(size).sum::<usize>();
        while batch.len() < MAX_ROWS {
            let Some(job) = jobs.next_if(|job| bytes + size(job) <= MAX_BYTES) else { break };
            bytes += size(&job);
            batch.push(job);
        }
        Some(batch)
    })
}

pub(super) fn size(job: &NewJob) -> usize {
    job.payload.get().len()
}

/// What to tell a caller of several statements of which one failed: once something is stored, the same call must not be
/// repeated as it was.
pub(crate) fn partly(stored: usize, total: usize, error: Error) -> Error {
    if stored == 0 {
        return error;
    }
    let what = format!("the first {stored} of {total} jobs are enqueued; for the ones after them: {error}");
    Error::new(ErrorKind::Unknown, what).with_source(error.into())
}
