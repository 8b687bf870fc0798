//! What a call has to ask of the producer until each of its tasks is stored: a conversation, of which the front-ends only
//! carry the questions and answers.
//!
//! A task without a dedup key is a row to insert. One with a key may meet a pending job: then its `merge` decides, here,
//! in the caller's own code and with nothing held; and the decision is stored if that job is still as it was, or else
//! made anew.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use log::Level;
use serde_json::value::to_raw_value;

use crate::error::{Error, ErrorKind};
use crate::merge::{Merge, Pending};
use crate::notice::notice;
use crate::panic_boundary::{Contained, guarded};
use crate::producer::{KeyedCall, Request, Response, Round};
use crate::reading::{Unreadable, read};
use crate::statement::{Candidate, Decision, Found, KeyedJob, NewJob, NewJobs, Stance};
use crate::submit::{Drawn, Held, checked};
use crate::{Effect, Enqueued, JobId, Task};

/// How often a task decides before it gives up. The producer serves its own callers of one key one after another, so
/// this many others would have to be faster, from elsewhere.
const MAX_ROUNDS: u32 = 100;

/// How many candidates that cannot be read are passed over before one stops looking for one that can.
const MAX_SKIPPED: usize = 16;

/// How many keyed tasks of a call are asked for at once: two statements' worth, so that one is ready when the other is
/// done.
const MAX_ASKED: usize = 200;

/// Tasks that were written together.
pub(crate) struct Offers<'a, T: Task> {
    /// The rows without a key, until they are asked for.
    rows: Option<NewJobs>,
    /// Which of the tasks these are.
    row_places: Vec<usize>,
    keyed: Vec<Offer<'a, T>>,
    places: Vec<Place>,
    asked: Vec<Asked>,
    failure: Option<Error>,
}

/// What is known of one task.
#[derive(Clone, Copy)]
enum Place {
    Open,
    Stored(Enqueued),
    InDoubt,
}

/// What an answer is about.
enum Asked {
    Rows,
    /// An index into `keyed`.
    Keyed(usize),
}

/// A task with a dedup key.
struct Offer<'a, T> {
    place: usize,
    task: Held<'a, T>,
    own: Arc<NewJob>,
    max_payload: usize,
    next: KeyedJob,
    rounds: u32,
    /// When the producer gives up, if it is one that answers; it says so with its first answer.
    until: Option<Instant>,
    done: bool,
}

impl<'a, T: Task> Offers<'a, T> {
    pub(crate) fn new(tasks: Vec<Drawn<'a, T>>, max_payload: usize) -> Self {
        let places = vec![Place::Open; tasks.len()];
        let (mut rows, mut row_places, mut keyed) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (job, task)) in tasks.into_iter().enumerate() {
            if let Some(task) = task {
                keyed.push(Offer::new(place, task, job, max_payload));
            } else {
                rows.push(job);
                row_places.push(place);
            }
        }
        // Locks are taken in this order; tasks with the same key stay in theirs.
        keyed.sort_by(|one, other| one.own.dedup_key.cmp(&other.own.dedup_key));
        let rows = (!rows.is_empty()).then(|| NewJobs::new(rows));
        Self { rows, row_places, keyed, places, asked: Vec::new(), failure: None }
    }

    /// What to ask next, all of it at once.
    pub(crate) fn ask(&mut self) -> Vec<Request> {
        self.asked.clear();
        let mut requests = Vec::new();
        if let Some(rows) = self.rows.take() {
            self.asked.push(Asked::Rows);
            requests.push(Request::Enqueue(rows));
        }
        // Tasks with the same key go one after another, each into what the one before has left.
        let mut keys = BTreeSet::new();
        for (index, offer) in self.keyed.iter_mut().enumerate().filter(|(_, offer)| !offer.done) {
            if requests.len() < MAX_ASKED && keys.insert(offer.own.dedup_key.clone()) {
                self.asked.push(Asked::Keyed(index));
                requests.push(Request::Keyed(offer.ask()));
            }
        }
        requests
    }

    /// Takes the answers to what was asked last; with `merge`, which is user code, where there is something to decide.
    pub(crate) fn answered(&mut self, answers: impl IntoIterator<Item = Result<Response, Error>>) {
        for (asked, answer) in mem::take(&mut self.asked).into_iter().zip(answers) {
            if let Err(error) = self.take_in(asked, answer) {
                self.failure.get_or_insert(error);
            }
        }
    }

    fn take_in(&mut self, asked: Asked, answer: Result<Response, Error>) -> Result<(), Error> {
        match asked {
            Asked::Rows => {
                let ids = match answer {
                    Ok(Response::Enqueued(ids)) if ids.len() == self.row_places.len() => Ok(ids),
                    Ok(_) => Err(miscounted()),
                    Err(error) => Err(error),
                };
                let places = mem::take(&mut self.row_places);
                let ids = ids.inspect_err(|error| places.iter().for_each(|place| self.doubt(*place, error)))?;
                let inserted = |id| Place::Stored(Enqueued { id: JobId(id), effect: Effect::Inserted });
                places.into_iter().zip(ids).for_each(|(place, id)| self.put(place, inserted(id)));
            }
            Asked::Keyed(index) => {
                let offer = self.keyed.get_mut(index).ok_or_else(miscounted)?;
                let place = offer.place;
                let round = match answer {
                    Ok(Response::Keyed(round)) => Ok(round),
                    Ok(_) => Err(miscounted()),
                    Err(error) => Err(error),
                };
                match round.and_then(|round| offer.answered(round)) {
                    Ok(None) => {}
                    Ok(Some(stored)) => self.put(place, Place::Stored(stored)),
                    Err(error) => {
                        self.doubt(place, &error);
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn doubt(&mut self, place: usize, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Internal) {
            self.put(place, Place::InDoubt);
        }
    }

    fn put(&mut self, place: usize, what: Place) {
        if let Some(place) = self.places.get_mut(place) {
            *place = what;
        }
    }

    /// All is stored, or something failed: then nothing more is asked.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || (self.rows.is_none() && self.keyed.iter().all(|offer| offer.done))
    }

    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// What the first tasks became, up to one that is not stored for certain; and how many after them may be.
    pub(crate) fn stored(&self) -> (Vec<Enqueued>, usize) {
        let stored = |place: &Place| if let Place::Stored(it) = place { Some(*it) } else { None };
        let first: Vec<Enqueued> = self.places.iter().map_while(stored).collect();
        let touched = self.places.iter().rposition(|place| !matches!(place, Place::Open)).map_or(0, |last| last + 1);
        let in_doubt = touched.saturating_sub(first.len());
        (first, in_doubt)
    }
}

impl<'a, T: Task> Offer<'a, T> {
    fn new(place: usize, task: Held<'a, T>, own: NewJob, max_payload: usize) -> Self {
        let own = Arc::new(own);
        let next = KeyedJob { job: Arc::clone(&own), stance: None, skip: Vec::new() };
        Self { place, task, own, max_payload, next, rounds: 0, until: None, done: false }
    }

    fn ask(&mut self) -> KeyedCall {
        self.rounds += 1;
        KeyedCall { keyed: Arc::new(self.next.clone()), until: self.until }
    }

    fn answered(&mut self, round: Round) -> Result<Option<Enqueued>, Error> {
        match round {
            Round::Stored(stored) => {
                self.done = true;
                Ok(Some(stored))
            }
            Round::Changed { .. } if self.rounds >= MAX_ROUNDS => Err(self.contended()),
            Round::Changed { candidate, until } => {
                self.until = until;
                self.next.job = Arc::clone(&self.own);
                self.next.stance = None;
                if let Some(candidate) = candidate {
                    self.meet(candidate)?;
                }
                Ok(None)
            }
        }
    }

    fn contended(&self) -> Error {
        let key = self.own.dedup_key.as_deref().unwrap_or_default();
        let what = format!(
            "the job was not enqueued: the pending {} with the key {key:?} was changed by others each of {MAX_ROUNDS} \
             times that it was decided about; try again later",
            T::KIND
        );
        Error::new(ErrorKind::Contended, what)
    }

    /// Decides about the pending job, unless it is one that this code cannot read.
    fn meet(&mut self, candidate: Candidate) -> Result<(), Error> {
        let Candidate { id, version, found } = candidate;
        let pending = match found.and_then(|found| pending::<T>(id, found)) {
            Ok(pending) => pending,
            Err(why) => {
                notice(
                    Level::Warn,
                    format_args!(
                        "job {id}, a pending {} with the same dedup key, is left alone by an enqueue: {why}",
                        T::KIND
                    ),
                );
                self.pass_over(id);
                return Ok(());
            }
        };
        let (decision, job) = self.merge(pending).unwrap_or_else(|panic| {
            let what = format!("the job was not enqueued: merging a {} with the pending job {id} {panic}", T::KIND);
            Err(Error::new(ErrorKind::Merge, what))
        })?;
        self.next.job = job;
        self.next.stance = Some(Stance { decision, expected: version });
        Ok(())
    }

    fn pass_over(&mut self, id: i64) {
        self.next.skip.push(id);
        if self.next.skip.len() > MAX_SKIPPED {
            self.next.stance = Some(Stance { decision: Decision::Independent, expected: "*".to_owned() });
        }
    }

    /// What to store, or the text of the first panic.
    ///
    /// Each step is guarded by itself, and whatever belongs to the user stays outside: a panic must not unwind through it.
    fn merge(&self, pending: Pending<T>) -> Result<Result<(Decision, Arc<NewJob>), Error>, String> {
        let merge = self.task.borrow().ok_or_else(|| "found no task".to_owned());
        let merge = merge.and_then(|task| guarded(|| task.merge(&pending)));
        let Pending { task, carry, .. } = pending;
        let ended = [Contained::new(task).end(), Contained::new(carry).end()];
        let merge = merge?;
        let decided = guarded(|| self.decide(&merge));
        let merged = if let Merge::With { task, carry } = merge {
            [Contained::new(task).end(), Contained::new(carry).end()]
        } else {
            [Ok(()), Ok(())]
        };
        let decided = decided?;
        ended.into_iter().chain(merged).collect::<Result<(), _>>().map(|()| decided)
    }

    fn decide(&self, merge: &Merge<T>) -> Result<(Decision, Arc<NewJob>), Error> {
        let own = || Arc::clone(&self.own);
        Ok(match merge {
            Merge::Keep => (Decision::Keep, own()),
            Merge::Replace => (Decision::Replace, own()),
            Merge::Independent => (Decision::Independent, own()),
            Merge::With { task, carry } => {
                let payload = checked::<T>(to_raw_value(task), self.max_payload)?;
                let carry = carry.as_ref().map(to_raw_value).transpose().map_err(|error| {
                    Error::new(ErrorKind::Payload, format!("the merged carry of {} cannot be written as JSON", T::KIND))
                        .with_source(error.into())
                })?;
                let NewJob { kind, dedup_key, delay, due_at, trace, .. } = &*self.own;
                let merged = NewJob {
                    kind: kind.clone(),
                    priority: self.own.priority.min(task.priority()),
                    payload,
                    dedup_key: dedup_key.clone(),
                    delay: *delay,
                    due_at: *due_at,
                    trace: trace.clone(),
                };
                (Decision::With(carry), Arc::new(merged))
            }
        })
    }
}

/// Decodes the pending job, or says why it cannot be read.
fn pending<T: Task>(id: i64, found: Found) -> Result<Pending<T>, String> {
    let (task, carry) = read::<T>(&found.payload, found.carry.as_deref()).map_err(Unreadable::into_text)?;
    Ok(Pending {
        id: JobId(id),
        task,
        carry,
        priority: found.priority,
        created_at: found.created_at,
        due_at: found.visible_at,
        run_count: found.run_count.unsigned_abs(),
        failure_count: found.failure_count.unsigned_abs(),
    })
}

fn miscounted() -> Error {
    Error::new(
        ErrorKind::Internal,
        "enqueueing: the jobs were stored, but not as many numbers came back; please report this defect",
    )
}

#[cfg(test)]
mod tests;
