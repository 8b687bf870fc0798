//! Any number of tasks, taken from an iterator and stored batch by batch.
#![deny(clippy::disallowed_methods)]

use std::iter::Fuse;
use std::mem;

use crate::error::{Error, ErrorKind, Partial};
use crate::offer::Offers;
use crate::panic_boundary::{Contained, guarded};
use crate::submit::Drawn;
use crate::{Enqueued, Submit, Task};

use super::call::{Request, Response};

/// The most rows of a batch. Ten times as many are stored no faster, and hold memory on both sides.
pub(super) const MAX_BATCH: usize = 10_000;

/// The most payload of a batch, and of an insert that several calls share.
pub(super) const MAX_BYTES: usize = 8_000_000;

/// One call that enqueues: a front-end asks it what to ask, and tells it the answers.
///
/// 1. [`ask`](Self::ask) gives requests, which all go out at once.
/// 2. [`look_ahead`](Self::look_ahead) writes the next batch while they are on their way; not more, or a failure could
///    leave a gap.
/// 3. [`answered`](Self::answered) takes the answers, in the order of the requests.
///
/// When there is nothing to ask, [`finish`](Self::finish) tells what became of the tasks.
pub(crate) struct Bulk<'a, T: Task, I> {
    /// What is left of it may be many tasks.
    tasks: Contained<Fuse<I>>,
    max_payload: usize,
    /// What did not fit into the last batch.
    held: Option<Drawn<'a, T>>,
    current: Option<Offers<'a, T>>,
    next: Option<Offers<'a, T>>,
    stored: Vec<Enqueued>,
    /// Why there is no next batch, and how many jobs may or may not be stored.
    failure: Option<(Error, usize)>,
}

impl<'a, T: Task, I> Bulk<'a, T, I>
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    pub(crate) fn new(tasks: impl IntoIterator<IntoIter = I, Item = I::Item>, max_payload: usize) -> Self {
        let (tasks, stored) = (Contained::new(tasks.into_iter().fuse()), Vec::new());
        Self { tasks, max_payload, held: None, current: None, next: None, stored, failure: None }
    }

    /// What to ask now; nothing when the call is over.
    pub(crate) fn ask(&mut self) -> Option<Vec<Request>> {
        if self.current.is_none() {
            self.look_ahead();
            self.current = self.next.take();
        }
        self.current.as_mut().map(Offers::ask)
    }

    /// Takes as many tasks as go together from the iterator, unless that is done already.
    pub(crate) fn look_ahead(&mut self) {
        if self.next.is_some() || self.failure.is_some() {
            return;
        }
        match self.pull_batch() {
            Ok(batch) if batch.is_empty() => {}
            Ok(batch) => self.next = Some(Offers::new(batch, self.max_payload)),
            Err(error) => self.failure = Some((error, 0)),
        }
    }

    fn pull_batch(&mut self) -> Result<Vec<Drawn<'a, T>>, Error> {
        let mut batch: Vec<Drawn<'a, T>> = self.held.take().into_iter().collect();
        let mut bytes = batch.iter().map(|(job, _)| job.size()).sum::<usize>();
        while batch.len() < MAX_BATCH {
            let Some(drawn) = self.pull()? else { break };
            let size = drawn.0.size();
            if !batch.is_empty() && bytes + size > MAX_BYTES {
                self.held = Some(drawn);
                break;
            }
            bytes += size;
            batch.push(drawn);
        }
        Ok(batch)
    }

    fn pull(&mut self) -> Result<Option<Drawn<'a, T>>, Error> {
        let next = guarded(|| self.tasks.0.as_mut().and_then(Iterator::next).map(Into::into)).map_err(|panic| {
            Error::new(ErrorKind::Payload, format!("the iterator over tasks of the kind {} {panic}", T::KIND))
        })?;
        next.map(|submit| submit.into_job(self.max_payload)).transpose()
    }

    /// The answers to what was asked last. Where a task meets a pending job, its `merge` is called in here.
    pub(crate) fn answered(&mut self, answers: impl IntoIterator<Item = Result<Response, Error>>) {
        let Some(current) = &mut self.current else { return };
        current.answered(answers);
        if !current.is_over() {
            return;
        }
        let Some(mut current) = self.current.take() else { return };
        let (mut stored, in_doubt) = current.stored();
        self.stored.append(&mut stored);
        if let Some(error) = current.take_failure() {
            // It was before whatever may have been wrong with the tasks after it.
            self.failure = Some((error, in_doubt));
            self.next = None;
        }
    }

    /// One for each task, or how far it went.
    pub(crate) fn finish(mut self) -> Result<Vec<Enqueued>, Error> {
        let stored = mem::take(&mut self.stored);
        match self.failure.take() {
            None => Ok(stored),
            Some((error, in_doubt)) => Err(error.after(Partial { enqueued: stored, in_doubt })),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// One for each task; for what is taken back as a whole when it fails.
    pub(crate) fn finish_whole(mut self) -> Result<Vec<Enqueued>, Error> {
        match self.failure.take() {
            None => Ok(mem::take(&mut self.stored)),
            Some((error, _)) => Err(error),
        }
    }

    /// Of a call with one task: what became of it.
    pub(crate) fn finish_one(mut self) -> Result<Enqueued, Error> {
        if let Some((error, _)) = self.failure.take() {
            return Err(error);
        }
        self.stored
            .pop()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "enqueueing: there was no task; please report this defect"))
    }
}

#[cfg(test)]
mod tests;
