//! What a queue's call does, as questions one after the other: a front-end asks each and passes the answer on, until
//! there is a result. So that both front-ends have the same calls, and neither knows what they mean.
#![deny(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::JobId;
use crate::control::{CancelOutcome, CancelledAll, Cleaned, RequeueOutcome, RequeuedAll};
use crate::cursor::Cursor;
use crate::doctor::{self, Hearing};
use crate::error::{Error, ErrorKind};
use crate::filter::{Cleanup, JobFilter, JobPage, JournalPage};
use crate::job_info::{JobInfo, JobStatus};
use crate::limits::MAX_PAGE;
use crate::statement::{
    CancelAnswer, CleanupBatch, Find, Finding, FoundJobs, FoundJournal, Inquiry, RequeueAnswer, Touch,
};
use crate::stats::{PausedKind, Stats, WorkerClaims};
use crate::task::check_kind;

/// Rows of each table that the first look of a filtered listing covers, and the most that a later one does: enough that
/// the trip does not count, and some 20 ms of the server's time.
const FIRST_LOOK: i32 = 1_000;
const LARGEST_LOOK: i32 = 20_000;

/// After so many looks, which is a million rows, a page is returned as it is: its caller may have seen enough.
const LOOKS: u32 = 50;

/// Jobs that one statement of a bulk operation writes: their rows stay locked for some 10 ms.
const BATCH: i32 = 500;

/// What a call comes to: a result, or a question with what follows from its answer.
pub(crate) enum Errand<T> {
    Done(T),
    Ask(Inquiry, Next<T>),
}

type Next<T> = Box<dyn FnOnce(Result<Finding, Error>) -> Result<Errand<T>, Error> + Send>;

impl<T: 'static> Errand<T> {
    /// One question, whose answer is the result.
    fn once(inquiry: Inquiry, read: impl FnOnce(Finding) -> Option<T> + Send + 'static) -> Self {
        Self::Ask(inquiry, Box::new(|found| read(found?).map(Self::Done).ok_or_else(unfit)))
    }
}

fn unfit() -> Error {
    Error::new(
        ErrorKind::Internal,
        "asking the database: the answer does not fit the question, which is a defect in venturi; please report it",
    )
}

pub(crate) fn job(id: JobId) -> Errand<Option<JobInfo>> {
    Errand::once(Inquiry::Job(id.get()), |found| match found {
        Finding::Job(job) => Some(job.map(|job| *job)),
        _ => None,
    })
}

pub(crate) fn stats() -> Errand<Stats> {
    Errand::once(Inquiry::Stats, |found| match found {
        Finding::Stats(stats) => Some(stats),
        _ => None,
    })
}

pub(crate) fn paused_kinds() -> Errand<Vec<PausedKind>> {
    Errand::once(Inquiry::PausedKinds, |found| match found {
        Finding::PausedKinds(kinds) => Some(kinds),
        _ => None,
    })
}

pub(crate) fn workers() -> Errand<Vec<WorkerClaims>> {
    Errand::once(Inquiry::Workers, |found| match found {
        Finding::Workers(workers) => Some(workers),
        _ => None,
    })
}

/// The schema first, since the facts are read from its tables. `wall` is the application's clock.
pub(crate) fn doctor(hearing: Hearing, wall: SystemTime) -> Errand<Vec<doctor::Finding>> {
    let look = move |pieces: Result<Finding, Error>| {
        let Finding::Inventory(pieces) = pieces? else { return Err(unfit()) };
        let judge = move |facts| {
            let facts = match facts {
                Ok(Finding::Facts(facts)) => Ok(*facts),
                Ok(_) => Err(unfit()),
                Err(error) => Err(error),
            };
            doctor::findings(&pieces, facts, &hearing, wall).map(Errand::Done)
        };
        Ok(Errand::Ask(Inquiry::Diagnose, Box::new(judge)))
    };
    Errand::Ask(Inquiry::Inventory, Box::new(look))
}

pub(crate) fn announce(channel: String, text: String) -> Errand<()> {
    Errand::once(Inquiry::Announce { channel, text }, |found| matches!(found, Finding::Announced).then_some(()))
}

pub(crate) fn pause_kind(kind: &str) -> Result<Errand<bool>, Error> {
    check_kind(kind)?;
    Ok(Errand::once(Inquiry::PauseKind(kind.to_owned()), switched))
}

pub(crate) fn resume_kind(kind: &str) -> Result<Errand<bool>, Error> {
    check_kind(kind)?;
    Ok(Errand::once(Inquiry::ResumeKind(kind.to_owned()), switched))
}

fn switched(found: Finding) -> Option<bool> {
    match found {
        Finding::Switched(changed) => Some(changed),
        _ => None,
    }
}

pub(crate) fn cancel(id: JobId) -> Errand<CancelOutcome> {
    let statuses = vec![JobStatus::Pending, JobStatus::Claimed];
    let inquiry = Inquiry::Cancel(Touch { ids: vec![id.get()], statuses, patient: true });
    Errand::once(inquiry, |found| {
        let Finding::Cancelled(answers) = found else { return None };
        match answers.first()?.1 {
            CancelAnswer::Cancelled => Some(CancelOutcome::Cancelled),
            CancelAnswer::Requested => Some(CancelOutcome::Requested),
            CancelAnswer::Finished => Some(CancelOutcome::AlreadyFinished),
            CancelAnswer::NotThere => Some(CancelOutcome::NotFound),
            CancelAnswer::Busy | CancelAnswer::NotTouched => None,
        }
    })
}

pub(crate) fn requeue(id: JobId) -> Errand<RequeueOutcome> {
    let statuses = vec![JobStatus::Completed, JobStatus::Dead, JobStatus::Cancelled];
    let inquiry = Inquiry::Requeue(Touch { ids: vec![id.get()], statuses, patient: true });
    Errand::once(inquiry, |found| {
        let Finding::Requeued(answers) = found else { return None };
        match answers.first()?.1 {
            RequeueAnswer::Requeued(_) => Some(RequeueOutcome::Requeued),
            RequeueAnswer::NotFinished => Some(RequeueOutcome::NotFinished),
            RequeueAnswer::NotThere => Some(RequeueOutcome::NotFound),
            RequeueAnswer::Conflict(other) => Some(RequeueOutcome::Conflict(JobId(other))),
            RequeueAnswer::Busy | RequeueAnswer::NotTouched => None,
        }
    })
}

pub(crate) fn journal(id: JobId, after: Option<Cursor>) -> Result<Errand<JournalPage>, Error> {
    let job = id.get();
    let after = after.map_or(Ok(0), |cursor| cursor.entry(job))?;
    Ok(Errand::once(Inquiry::Journal { job, after, most: rows(MAX_PAGE) }, move |found| match found {
        Finding::Journal(found) => Some(journal_page(job, found)),
        _ => None,
    }))
}

/// The end of a job comes last; while the page is full without it, there may be more.
fn journal_page(job: i64, found: FoundJournal) -> JournalPage {
    let full = found.rows >= usize::try_from(MAX_PAGE).unwrap_or(usize::MAX);
    let next = found.last.filter(|_| full).map(|entry| Cursor::behind(job, entry));
    JournalPage { entries: found.entries, next }
}

pub(crate) fn jobs(filter: JobFilter) -> Result<Errand<JobPage>, Error> {
    let walk = Walk::new(filter, &JobStatus::ALL)?;
    let want = walk.filter.page();
    let page = JobPage { jobs: Vec::new(), unreadable: Vec::new(), next: None };
    Ok(Listing { walk, want: usize::try_from(want).unwrap_or(usize::MAX), looks: 0, page }.look())
}

pub(crate) fn cancel_all(filter: JobFilter) -> Result<Errand<CancelledAll>, Error> {
    let walk = Walk::new(filter, &[JobStatus::Pending, JobStatus::Claimed])?;
    Ok(Bulk { walk, act: Inquiry::Cancel, tally: tally_cancelled, done: CancelledAll::default(), jobs: 0 }.look())
}

fn tally_cancelled(done: &mut CancelledAll, found: Finding) -> Option<u64> {
    let Finding::Cancelled(answers) = found else { return None };
    let mut jobs = 0;
    for (_, answer) in answers {
        match answer {
            CancelAnswer::Cancelled => done.cancelled += 1,
            CancelAnswer::Requested => done.requested += 1,
            CancelAnswer::Busy => done.skipped += 1,
            // Meanwhile it has become something that was not asked for.
            CancelAnswer::Finished | CancelAnswer::NotThere | CancelAnswer::NotTouched => continue,
        }
        jobs += 1;
    }
    Some(jobs)
}

/// Without a status only dead jobs: nobody means to run the whole history again.
pub(crate) fn requeue_all(mut filter: JobFilter) -> Result<Errand<RequeuedAll>, Error> {
    if filter.statuses.is_empty() {
        filter.statuses.push(JobStatus::Dead);
    }
    let walk = Walk::new(filter, &[JobStatus::Completed, JobStatus::Dead, JobStatus::Cancelled])?;
    Ok(Bulk { walk, act: Inquiry::Requeue, tally: tally_requeued, done: RequeuedAll::default(), jobs: 0 }.look())
}

fn tally_requeued(done: &mut RequeuedAll, found: Finding) -> Option<u64> {
    let Finding::Requeued(answers) = found else { return None };
    let mut jobs = 0;
    for (_, answer) in answers {
        match answer {
            RequeueAnswer::Requeued(_) => done.requeued += 1,
            RequeueAnswer::Conflict(_) => done.conflicts += 1,
            RequeueAnswer::Busy => done.skipped += 1,
            RequeueAnswer::NotFinished | RequeueAnswer::NotThere | RequeueAnswer::NotTouched => continue,
        }
        jobs += 1;
    }
    Some(jobs)
}

/// Who hears how many are deleted so far, after each batch, and may say that it is enough.
pub(crate) type Progress = Box<dyn FnMut(Cleaned) -> ControlFlow<()> + Send>;

pub(crate) fn cleanup(criteria: Cleanup) -> Errand<Cleaned> {
    cleanup_with(criteria, Box::new(|_| ControlFlow::Continue(())))
}

pub(crate) fn cleanup_count(criteria: Cleanup) -> Errand<Cleaned> {
    let ages: Vec<_> = criteria.ages().map(|(status, age)| (status, age.as_secs_f64())).collect();
    Errand::once(Inquiry::CleanupCount(ages), |found| {
        let Finding::Counted(counts) = found else { return None };
        let mut all = Cleaned::default();
        counts.into_iter().for_each(|(status, jobs)| all.count(status, jobs));
        Some(all)
    })
}

pub(crate) fn cleanup_with(criteria: Cleanup, progress: Progress) -> Errand<Cleaned> {
    let batch = |(status, age): (JobStatus, Duration)| CleanupBatch {
        status,
        age: age.as_secs_f64(),
        from: f64::NEG_INFINITY,
        most: BATCH,
    };
    next_cleanup(criteria.ages().map(batch).collect(), Cleaned::default(), progress)
}

/// Batch by batch, one status after the other.
fn next_cleanup(mut batches: VecDeque<CleanupBatch>, mut done: Cleaned, mut progress: Progress) -> Errand<Cleaned> {
    let Some(batch) = batches.front().cloned() else { return Errand::Done(done) };
    let status = batch.status;
    Errand::Ask(
        Inquiry::Cleanup(batch),
        Box::new(move |found| {
            let Finding::Deleted(deleted) = found.map_err(|error| half_way(done.total(), &error))? else {
                return Err(unfit());
            };
            done.count(status, deleted.jobs);
            if deleted.jobs < u64::from(BATCH.unsigned_abs()) {
                batches.pop_front();
            } else if let (Some(batch), Some(reached)) = (batches.front_mut(), deleted.reached) {
                batch.from = reached;
            }
            Ok(match progress(done) {
                ControlFlow::Continue(()) => next_cleanup(batches, done, progress),
                ControlFlow::Break(()) => Errand::Done(done),
            })
        }),
    )
}

/// What to tell a caller of several statements of which one failed. Repeating the call goes on where it stopped.
fn half_way(jobs: u64, error: &Error) -> Error {
    Error::new(error.kind(), if jobs == 0 { error.to_string() } else { format!("after {jobs} jobs: {error}") })
}

/// The way through the jobs that fit, from the newest on.
struct Walk {
    filter: Arc<JobFilter>,
    statuses: Vec<JobStatus>,
    below: i64,
    /// How far the next look goes.
    look: i32,
}

impl Walk {
    fn new(filter: JobFilter, possible: &[JobStatus]) -> Result<Self, Error> {
        filter.check()?;
        let below = filter.after.map_or(Ok(i64::MAX), Cursor::job)?;
        let mut statuses = filter.statuses_among(possible);
        if filter.finished.is_bounded() {
            statuses.retain(|status| status.is_finished());
        }
        Ok(Self { filter: Arc::new(filter), statuses, below, look: FIRST_LOOK })
    }

    /// The next look, for so many jobs; `None`: nothing can fit.
    fn find(&mut self, most: i32, content: bool) -> Option<Inquiry> {
        let look = if self.filter.fits_all() { most } else { self.look.max(most) };
        self.look = self.look.saturating_mul(4).min(LARGEST_LOOK);
        let (filter, statuses) = (Arc::clone(&self.filter), self.statuses.clone());
        let find = Find { filter, statuses, below: self.below, look, most, content };
        (!self.statuses.is_empty()).then_some(Inquiry::Find(find))
    }
}

/// A page that is being filled.
struct Listing {
    walk: Walk,
    /// Jobs that are still wanted.
    want: usize,
    looks: u32,
    page: JobPage,
}

impl Listing {
    /// Asks for one more than is wanted, to know whether there is a next page.
    fn look(mut self) -> Errand<JobPage> {
        let most = i32::try_from(self.want.saturating_add(1)).unwrap_or(i32::MAX);
        let content = !self.walk.filter.without_content;
        match self.walk.find(most, content) {
            None => Errand::Done(self.page),
            Some(find) => Errand::Ask(
                find,
                Box::new(move |found| match found? {
                    Finding::Jobs(found) => Ok(self.took(found)),
                    _ => Err(unfit()),
                }),
            ),
        }
    }

    fn took(mut self, found: FoundJobs) -> Errand<JobPage> {
        let FoundJobs { mut jobs, mut unreadable, floor, lowest } = found;
        let came = jobs.len() + unreadable.len();
        if came > self.want {
            // The lowest belongs to the next page, which begins below the lowest that stays.
            jobs.retain(|job| Some(job.id.get()) != lowest);
            unreadable.retain(|id| Some(*id) != lowest);
            self.page.next = lowest.map(|lowest| Cursor::below(lowest.saturating_add(1)));
        }
        self.looks += 1;
        self.want = self.want.saturating_sub(came);
        self.page.jobs.append(&mut jobs);
        self.page.unreadable.extend(unreadable.into_iter().map(JobId));
        match floor {
            Some(floor) if self.page.next.is_none() => {
                self.walk.below = floor;
                if self.want > 0 && self.looks < LOOKS {
                    return self.look();
                }
                self.page.next = Some(Cursor::below(floor));
                Errand::Done(self.page)
            }
            _ => Errand::Done(self.page),
        }
    }
}

/// Something that is done to all jobs that fit, batch by batch.
struct Bulk<T> {
    walk: Walk,
    act: fn(Touch) -> Inquiry,
    /// Adds an answer up, and says of how many jobs it was.
    tally: fn(&mut T, Finding) -> Option<u64>,
    done: T,
    jobs: u64,
}

impl<T: Send + 'static> Bulk<T> {
    fn look(mut self) -> Errand<T> {
        match self.walk.find(BATCH, false) {
            None => Errand::Done(self.done),
            Some(find) => Errand::Ask(
                find,
                Box::new(move |found| match found.map_err(|error| half_way(self.jobs, &error))? {
                    Finding::Jobs(found) => Ok(self.take_on(found)),
                    _ => Err(unfit()),
                }),
            ),
        }
    }

    fn take_on(mut self, found: FoundJobs) -> Errand<T> {
        let ids: Vec<i64> = found.jobs.iter().map(|job| job.id.get()).chain(found.unreadable).collect();
        let full = ids.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
        let below = if full { found.lowest } else { found.floor };
        if ids.is_empty() {
            return self.go_on(below);
        }
        let touch = Touch { ids, statuses: self.walk.statuses.clone(), patient: false };
        Errand::Ask(
            (self.act)(touch),
            Box::new(move |found| {
                let found = found.map_err(|error| half_way(self.jobs, &error))?;
                self.jobs += (self.tally)(&mut self.done, found).ok_or_else(unfit)?;
                Ok(self.go_on(below))
            }),
        )
    }

    fn go_on(mut self, below: Option<i64>) -> Errand<T> {
        match below {
            Some(below) => {
                self.walk.below = below;
                self.look()
            }
            None => Errand::Done(self.done),
        }
    }
}

fn rows(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
