//! A model of the database: what each statement does, without SQL, as the heads of the files in `src/sql` say it.

mod claiming;
mod control;
mod keyed;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;

use crate::Priority;
use crate::job::{Json, RunId};
use crate::statement::{
    Checkpoint, CleanupBatch, CopyJobs, Enqueue, Held, NewId, NewJob, Numbers, Promote, Renew, Reply, Statement,
    Survey, SurveyReply,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Scheduled,
    Claimed { by: String, expires: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: &'static str,
    pub(crate) priority: Priority,
    pub(crate) created: Duration,
    pub(crate) visible: Duration,
    pub(crate) state: State,
    pub(crate) run_count: i32,
    pub(crate) failures: i32,
    pub(crate) payload: String,
    pub(crate) carry: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) trace: Option<String>,
    pub(crate) cancel_requested: bool,
    /// When it finished, if it has.
    pub(crate) ended: Duration,
    /// Another one after each change that somebody who decides about the pending row must hear of.
    version: u64,
}

impl Row {
    fn is_claimed(&self) -> bool {
        matches!(self.state, State::Claimed { .. })
    }

    fn is_of(&self, run: i32, worker: &str) -> bool {
        self.run_count == run && matches!(&self.state, State::Claimed { by, .. } if by == worker)
    }
}

/// An entry that ends a run: which run, whose, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: RunId,
    pub(crate) by: String,
    pub(crate) what: &'static str,
}

/// A rule that this server breaks, to show that a test would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A result is stored whoever has the job by now.
    NoFence,
    /// A job that is put back after a failure is gone.
    LosesRetried,
    /// A claim takes as much of a kind as it wants.
    NoRoom,
}

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) now: Duration,
    pub(crate) live: BTreeMap<i64, Row>,
    /// Finished jobs with the word for how.
    pub(crate) finished: BTreeMap<i64, (Row, &'static str)>,
    /// The ends of runs.
    pub(crate) journal: Vec<Entry>,
    /// What was done to jobs between runs: job, runs so far, what.
    pub(crate) events: Vec<(i64, i32, &'static str)>,
    /// Jobs of which nothing is left: completed ones that were not kept, and what cleanups have deleted.
    pub(crate) discarded: BTreeSet<i64>,
    pub(crate) paused_kinds: BTreeSet<String>,
    pub(crate) claims: Vec<(Duration, RunId, String, Priority)>,
    /// How many seconds a claim looks that begins at the beginning.
    pub(crate) full_look: f64,
    /// Seconds of one from the marks.
    pub(crate) bounded_look: f64,
    /// Live rows that transactions of others hold, such as those of handlers with completions that are not committed yet.
    pub(crate) locked: BTreeSet<i64>,
    /// Old finished jobs that cleanups find, of which nothing else is known.
    pub(crate) to_delete: u64,
    pub(crate) sweeps: Vec<(Duration, CleanupBatch)>,
    /// When claims looked for others that ran out, and how many seconds back.
    pub(crate) glances: Vec<(Duration, f64)>,
    pub(crate) flaw: Option<Flaw>,
    next_id: i64,
    versions: u64,
}

pub(crate) fn json(text: &str) -> Json {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Seconds from `now` to `at`.
fn seconds_to(at: Duration, now: Duration) -> f64 {
    at.as_secs_f64() - now.as_secs_f64()
}

/// When a job is due that is new at `now`.
fn due(job: &NewJob, now: Duration) -> Duration {
    let at = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    job.due_at.map_or(now + Duration::from_secs_f64(job.delay.max(0.0)), |it| at(it).max(now))
}

/// The few kinds of a test live as long as the test.
fn kind_name(name: &str) -> &'static str {
    const KINDS: [&str; 4] = ["a", "b", "fast", "slow"];
    KINDS.into_iter().find(|kind| *kind == name).unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()))
}

impl Server {
    pub(crate) fn enqueue(&mut self, kind: &'static str, priority: Priority, delay: Duration) -> i64 {
        let payload = json("null");
        let job =
            NewJob { kind: kind.into(), priority, payload, dedup_key: None, trace: None, delay: 0.0, due_at: None };
        let due = self.now + delay;
        self.insert(&job, due)
    }

    fn insert(&mut self, job: &NewJob, due: Duration) -> i64 {
        let id = self.next_id();
        self.insert_as(id, job, self.now, due);
        id
    }

    fn insert_as(&mut self, id: i64, job: &NewJob, created: Duration, due: Duration) {
        let row = Row {
            kind: kind_name(&job.kind),
            priority: job.priority,
            created,
            visible: due,
            state: if due > created { State::Scheduled } else { State::Ready },
            run_count: 0,
            failures: 0,
            payload: job.payload.get().to_owned(),
            carry: None,
            key: job.dedup_key.clone(),
            trace: job.trace.clone(),
            cancel_requested: false,
            ended: Duration::ZERO,
            version: self.next_version(),
        };
        self.live.insert(id, row);
    }

    fn next_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    fn finish_as(&mut self, id: i64, row: Row, how: &'static str) {
        self.finished.insert(id, (Row { ended: self.now, ..row }, how));
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// How many jobs there have ever been.
    pub(crate) fn enqueued(&self) -> usize {
        usize::try_from(self.next_id).unwrap()
    }

    pub(crate) fn execute(&mut self, statement: &Statement) -> Reply {
        match statement {
            Statement::Exchange { settle, claim } => Reply::Exchange {
                settled: settle.as_ref().map(|settle| self.settle(settle)).unwrap_or_default(),
                claim: claim.as_ref().map(|claim| self.claim(claim)),
            },
            Statement::Stale(stale) => Reply::Stale(self.stale(stale)),
            Statement::Recover(recover) => Reply::Recovered(self.recover(recover)),
            Statement::Promote(promote) => self.promote(promote),
            Statement::Survey(survey) => Reply::Survey(self.survey(survey)),
            Statement::Renew(renew) => Reply::Renewed(self.renew(renew)),
            Statement::Held(held) => Reply::Held(self.held(held)),
            Statement::Checkpoint(checkpoint) => Reply::Checkpointed(self.checkpoint(checkpoint)),
            Statement::History(_) => Reply::History(Vec::new()),
            Statement::Enqueue(enqueue) => Reply::Enqueued(self.enqueue_all(enqueue)),
            Statement::EnqueueKeyed(keyed) => {
                Reply::Keyed(keyed.rows.iter().map(|job| self.enqueue_keyed(job)).collect())
            }
            Statement::Inquiry(inquiry) => Reply::Inquiry(self.inquire(inquiry)),
            Statement::Check => {
                let version = crate::migration::latest();
                Reply::Version { version, compatible_from: 1 }
            }
            // Who hears is the world's to say.
            Statement::Notify(_) => Reply::Notified(true),
            Statement::Interest(_) | Statement::Listen => Reply::Done,
            Statement::Reserve(count) => Reply::Reserved(self.reserve(*count)),
            Statement::Copy(copy) => Reply::Enqueued(self.copy(copy)),
        }
    }

    fn enqueue_all(&mut self, enqueue: &Enqueue) -> Vec<NewId> {
        let jobs: Vec<&NewJob> = enqueue.calls.iter().flat_map(|call| call.rows()).collect();
        jobs.into_iter().map(|job| self.enqueue_new(job)).collect()
    }

    fn enqueue_new(&mut self, job: &NewJob) -> NewId {
        let due = due(job, self.now);
        let id = self.insert(job, due);
        NewId { id, due_in: (due > self.now).then(|| seconds_to(due, self.now)) }
    }

    fn reserve(&mut self, count: i32) -> Numbers {
        Numbers { ids: (0..count).map(|_| self.next_id()).collect(), at: i64::try_from(self.now.as_micros()).unwrap() }
    }

    fn copy(&mut self, copy: &CopyJobs) -> Vec<NewId> {
        // All counts from when the numbers were given out, however much later the jobs come.
        let reserved = Duration::from_micros(copy.numbers.at.unsigned_abs());
        let jobs = copy.numbers.ids.iter().zip(copy.jobs.rows());
        let copied = jobs.map(|(id, job)| {
            let due = due(job, reserved);
            self.insert_as(*id, job, reserved, due);
            NewId { id: *id, due_in: (due > reserved).then(|| seconds_to(due, reserved)) }
        });
        copied.collect()
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> bool {
        let Checkpoint { worker, id, carry } = checkpoint;
        let Some(row) = self.live.get_mut(&id.job).filter(|row| row.is_of(id.run, worker)) else { return false };
        row.carry = Some(carry.get().to_owned());
        true
    }

    fn promote(&mut self, promote: &Promote) -> Reply {
        let most = usize::try_from(promote.most).unwrap();
        let (mut promoted, mut seen) = (0, 0);
        let locked = self.locked.clone();
        for kind in &promote.kinds {
            let mut due: Vec<(Duration, i64)> = self
                .live
                .iter()
                .filter(|(_, row)| row.kind == *kind && self.is_due(row, promote.look_back))
                .map(|(id, row)| (row.visible, *id))
                .collect();
            due.sort_unstable();
            seen += due.len().min(most + 1);
            for (_, id) in due.into_iter().take(most).filter(|(_, id)| !locked.contains(id)) {
                let version = self.next_version();
                let row = self.live.get_mut(&id).unwrap();
                (row.state, row.version) = (State::Ready, version);
                promoted += 1;
            }
        }
        let more_due = seen > usize::try_from(promoted).unwrap();
        Reply::Promoted { promoted, more_due, next_due: self.next_due(&promote.kinds) }
    }

    /// Whether a pass that looks back so far sees that this row's time has come.
    fn is_due(&self, row: &Row, look_back: f64) -> bool {
        row.state == State::Scheduled && row.visible <= self.now && seconds_to(self.now, row.visible) <= look_back
    }

    fn next_due(&self, kinds: &[&'static str]) -> Option<f64> {
        let rows = self
            .live
            .values()
            .filter(|row| kinds.contains(&row.kind) && row.state == State::Scheduled && row.visible > self.now);
        rows.map(|row| seconds_to(row.visible, self.now)).min_by(f64::total_cmp)
    }

    fn survey(&self, survey: &Survey) -> SurveyReply {
        let ours = || self.live.values().filter(|row| survey.kinds.contains(&row.kind));
        let is_ready = |id: &i64, row: &Row| {
            let wanted = survey.open.contains(&row.kind) && !self.paused_kinds.contains(row.kind);
            wanted && row.state == State::Ready && !survey.skip.contains(id)
        };
        let expiry = |row: &Row| match &row.state {
            State::Claimed { by, expires } if *by != *survey.worker && *expires >= self.now => {
                Some(seconds_to(*expires, self.now)).filter(|seconds| *seconds <= survey.horizon)
            }
            _ => None,
        };
        SurveyReply {
            ready: self.live.iter().any(|(id, row)| is_ready(id, row)),
            due: ours().any(|row| self.is_due(row, survey.look_back)),
            stale: self.any_stale(&survey.worker, survey.look_back),
            next_due: self.next_due(&survey.kinds),
            next_expiry: self.live.values().filter_map(expiry).min_by(f64::total_cmp),
        }
    }

    fn renew(&mut self, renew: &Renew) -> Vec<(RunId, bool)> {
        let now = self.now;
        let mut done = Vec::new();
        for (id, lease) in &renew.rows {
            let Some(row) = self.live.get_mut(&id.job).filter(|_| !self.locked.contains(&id.job)) else { continue };
            let ours = row.is_of(id.run, &renew.worker);
            if let (true, State::Claimed { expires, .. }) = (ours, &mut row.state) {
                *expires = now + Duration::from_secs_f64(*lease);
                done.push((*id, row.cancel_requested));
            }
        }
        done
    }

    fn held(&self, held: &Held) -> Vec<(RunId, bool)> {
        let ours = |row: &Row| matches!(&row.state, State::Claimed { by, .. } if **by == *held.worker);
        let rows =
            self.live.iter().filter(|(_, row)| ours(row)).map(|(id, row)| RunId { job: *id, run: row.run_count });
        let completed = held.runs.iter().filter(|id| self.completed(**id, &held.worker));
        rows.map(|id| (id, false)).chain(completed.map(|id| (*id, true))).collect()
    }

    pub(crate) fn completed(&self, id: RunId, worker: &str) -> bool {
        self.entry(id, worker) == Some("completed")
    }

    /// How a run of this worker has ended, as far as anything is left of its job.
    fn entry(&self, id: RunId, worker: &str) -> Option<&'static str> {
        if self.discarded.contains(&id.job) {
            return None;
        }
        self.journal.iter().rev().find(|entry| entry.id == id && entry.by == worker).map(|entry| entry.what)
    }
}
