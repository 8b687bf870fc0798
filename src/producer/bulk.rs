//! Any number of tasks, taken from an iterator and stored batch by batch.
#![deny(clippy::disallowed_methods)]

use std::iter::Fuse;

use crate::error::{Error, ErrorKind, Partial};
use crate::panic_boundary::guarded;
use crate::statement::{NewJob, NewJobs};
use crate::{Effect, Enqueued, JobId, Submit, Task};

use super::call::Response;

/// The most rows of a batch. Ten times as many are stored no faster, and hold memory on both sides.
pub(super) const MAX_BATCH: usize = 10_000;

/// The most payload of a batch, and of an insert that several calls share.
pub(super) const MAX_BYTES: usize = 8_000_000;

/// One call that enqueues many: a front-end asks it for batches, and tells it what became of each.
///
/// The next batch may be taken while one is on its way; not more, or a failure could leave a gap.
pub(crate) struct Bulk<I> {
    tasks: Fuse<I>,
    max_payload: usize,
    /// What did not fit into the last batch.
    held: Option<NewJob>,
    stored: Vec<Enqueued>,
    /// Why there is no next batch, and how many jobs may or may not be stored.
    failure: Option<(Error, usize)>,
}

impl<'a, I: Iterator> Bulk<I> {
    pub(crate) fn new(tasks: impl IntoIterator<IntoIter = I, Item = I::Item>, max_payload: usize) -> Self {
        let tasks = tasks.into_iter().fuse();
        Self { tasks, max_payload, held: None, stored: Vec::new(), failure: None }
    }

    /// As many tasks as go together, written as JSON. Nothing when there are no more, or something was wrong with one.
    pub(crate) fn next_batch<T: Task>(&mut self) -> Option<NewJobs>
    where
        I::Item: Into<Submit<'a, T>>,
    {
        if self.failure.is_some() {
            return None;
        }
        let mut rows: Vec<NewJob> = self.held.take().into_iter().collect();
        let mut bytes = rows.iter().map(NewJob::size).sum::<usize>();
        while rows.len() < MAX_BATCH {
            let job = match self.pull() {
                Ok(Some(job)) => job,
                Ok(None) => break,
                Err(error) => {
                    self.failure = Some((error, 0));
                    return None;
                }
            };
            if !rows.is_empty() && bytes + job.size() > MAX_BYTES {
                self.held = Some(job);
                break;
            }
            bytes += job.size();
            rows.push(job);
        }
        (!rows.is_empty()).then(|| NewJobs::new(rows))
    }

    fn pull<T: Task>(&mut self) -> Result<Option<NewJob>, Error>
    where
        I::Item: Into<Submit<'a, T>>,
    {
        let next = guarded(|| self.tasks.next().map(Into::into)).map_err(|panic| {
            Error::new(ErrorKind::Payload, format!("the iterator over tasks of the kind {} {panic}", T::KIND))
        })?;
        next.map(|submit| submit.into_job(self.max_payload)).transpose()
    }

    /// What became of a batch of so many; `false` when that is the end.
    pub(crate) fn answered(&mut self, asked: usize, answer: Result<Response, Error>) -> bool {
        match answer {
            Ok(Response::Enqueued(ids)) if ids.len() == asked => {
                let inserted = |id| Enqueued { id: JobId(id), effect: Effect::Inserted };
                self.stored.extend(ids.into_iter().map(inserted));
                return true;
            }
            Ok(other) => {
                debug_assert!(false, "an insert of {asked} was answered by {other:?}");
                self.failure = Some((miscounted(), asked));
            }
            // It was before whatever may have been wrong with the tasks after it.
            Err(error) => {
                let in_doubt = if error.kind() == ErrorKind::Unknown { asked } else { 0 };
                self.failure = Some((error, in_doubt));
            }
        }
        false
    }

    /// One for each task, or how far it went.
    pub(crate) fn finish(self) -> Result<Vec<Enqueued>, Error> {
        match self.failure {
            None => Ok(self.stored),
            Some((error, in_doubt)) => Err(error.after(Partial { enqueued: self.stored, in_doubt })),
        }
    }
}

fn miscounted() -> Error {
    Error::new(
        ErrorKind::Internal,
        "enqueueing: the jobs were stored, but not as many numbers came back; please report this defect",
    )
}

#[cfg(test)]
mod tests;
