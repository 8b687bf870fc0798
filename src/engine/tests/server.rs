//! A model of the database: what each statement does, without SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;

use crate::Priority;
use crate::job::{ClaimedJob, Json, RunId};
use crate::statement::{
    Checkpoint, Claim, ClaimReply, CleanupBatch, Deleted, Ending, Finding, Held, Inquiry, Promote, Recover, Recovered,
    Renew, Reply, Settle, Settled, Settlement, Stale, StaleRow, Statement, Survey, SurveyReply,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Scheduled,
    Claimed { by: String, expires: Duration },
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) priority: Priority,
    pub(super) created: Duration,
    pub(super) visible: Duration,
    pub(super) state: State,
    pub(super) run_count: i32,
    pub(super) failures: i32,
    pub(super) carry: Option<String>,
    pub(super) cancel_requested: bool,
}

impl Row {
    /// Whether this run of it is going on, and is this worker's.
    fn is_of(&self, run: i32, worker: &str) -> bool {
        self.run_count == run && matches!(&self.state, State::Claimed { by, .. } if by == worker)
    }
}

/// An entry that ends a run: which run, whose, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: RunId,
    pub(super) by: String,
    pub(super) what: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) now: Duration,
    pub(super) live: BTreeMap<i64, Row>,
    /// Finished jobs with the word for how.
    pub(super) finished: BTreeMap<i64, (Row, &'static str)>,
    pub(super) journal: Vec<Entry>,
    pub(super) claims: Vec<(Duration, RunId, String, Priority)>,
    pub(super) notifications: Vec<String>,
    /// How many seconds a claim looks that begins at the beginning.
    pub(super) full_look: f64,
    /// Seconds of one from the marks.
    pub(super) bounded_look: f64,
    /// Rows that transactions of handlers hold, with completions that are not committed yet.
    pub(super) locked: BTreeSet<i64>,
    /// Old finished jobs that cleanups find.
    pub(super) to_delete: u64,
    pub(super) sweeps: Vec<(Duration, CleanupBatch)>,
    next_id: i64,
}

/// Whether a bounded claim does not see this row.
fn is_behind(claim: &Claim, kind: &str, id: i64, row: &Row) -> bool {
    let Some(bounds) = &claim.bounds else { return false };
    let nth = claim.kinds.iter().position(|it| *it == kind).unwrap();
    let place = 3 * nth + usize::from(row.priority.code().unsigned_abs());
    bounds.created_at[place].is_some_and(|at| (SystemTime::UNIX_EPOCH + row.created, id) < (at, bounds.ids[place]))
}

pub(super) fn json(text: &str) -> Json {
    RawValue::from_string(text.to_owned()).unwrap()
}

impl Server {
    pub(super) fn enqueue(&mut self, kind: &'static str, priority: Priority, delay: Duration) -> i64 {
        self.next_id += 1;
        let state = if delay.is_zero() { State::Ready } else { State::Scheduled };
        let row = Row {
            kind,
            priority,
            created: self.now,
            visible: self.now + delay,
            state,
            run_count: 0,
            failures: 0,
            carry: None,
            cancel_requested: false,
        };
        self.live.insert(self.next_id, row);
        self.next_id
    }

    pub(super) fn execute(&mut self, statement: &Statement) -> Reply {
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
            Statement::Notify { payload, .. } => {
                self.notifications.push(payload.clone());
                Reply::Done
            }
            Statement::Inquiry(inquiry) => Reply::Inquiry(self.inquire(inquiry)),
            Statement::Check => {
                let version = crate::migration::latest();
                Reply::Version { version, compatible_from: 1 }
            }
            Statement::Listen
            | Statement::Enqueue(_)
            | Statement::EnqueueKeyed(_)
            | Statement::Reserve(_)
            | Statement::Copy(_) => Reply::Done,
        }
    }

    fn inquire(&mut self, inquiry: &Inquiry) -> Finding {
        match inquiry {
            Inquiry::Cancellations { worker, runs } => {
                let asked = |id: &&RunId| self.live.get(&id.job).is_some_and(|row| row.cancel_requested);
                let ours = |id: &&RunId| self.live.get(&id.job).is_some_and(|row| row.is_of(id.run, worker));
                Finding::Cancellations(runs.iter().filter(ours).filter(asked).copied().collect())
            }
            Inquiry::Cleanup(batch) => {
                self.sweeps.push((self.now, batch.clone()));
                let jobs = self.to_delete.min(u64::from(batch.most.unsigned_abs()));
                self.to_delete -= jobs;
                Finding::Deleted(Deleted { jobs, reached: (jobs > 0).then_some(1.0) })
            }
            other => panic!("no worker asks {other:?}"),
        }
    }

    /// What a queue does to a running job; says whether it runs.
    pub(super) fn request_cancel(&mut self, job: i64) -> bool {
        let running = self.live.get_mut(&job).filter(|row| matches!(row.state, State::Claimed { .. }));
        running.map(|row| row.cancel_requested = true).is_some()
    }

    fn claim(&mut self, claim: &Claim) -> ClaimReply {
        let looked_for = Some(if claim.bounds.is_some() { self.bounded_look } else { self.full_look });
        let mut seen: Vec<(Priority, Duration, i64)> = Vec::new();
        for (kind, room) in claim.kinds.iter().zip(&claim.room) {
            let mut of_kind: Vec<_> = self
                .live
                .iter()
                .filter(|(id, row)| row.kind == *kind && row.state == State::Ready && !claim.skip.contains(id))
                .filter(|(_, row)| i32::from(row.priority.code()) >= claim.floor)
                .filter(|(id, row)| !is_behind(claim, kind, **id, row))
                .map(|(id, row)| (row.priority, row.created, *id))
                .collect();
            of_kind.sort();
            of_kind.truncate(usize::try_from((*room).min(claim.want + claim.spare)).unwrap());
            seen.extend(of_kind);
        }
        seen.sort();
        seen.truncate(usize::try_from(claim.want + claim.spare).unwrap());
        let looked = u64::try_from(seen.len()).unwrap();
        seen.truncate(usize::try_from(claim.want).unwrap());
        let worker = claim.worker.to_string();
        let jobs = seen.iter().map(|(_, _, id)| self.take(*id, &worker, claim)).collect();
        ClaimReply { jobs, malformed: Vec::new(), looked, stale: self.any_stale(&worker), looked_for }
    }

    fn take(&mut self, id: i64, worker: &str, claim: &Claim) -> ClaimedJob {
        let now = self.now;
        let row = self.live.get_mut(&id).unwrap();
        let kind = claim.kinds.iter().position(|kind| *kind == row.kind).unwrap();
        row.run_count += 1;
        row.state =
            State::Claimed { by: worker.to_owned(), expires: now + Duration::from_secs_f64(claim.leases[kind]) };
        let id = RunId { job: id, run: row.run_count };
        self.claims.push((now, id, worker.to_owned(), row.priority));
        ClaimedJob {
            id,
            kind: row.kind.to_owned(),
            priority: row.priority,
            created_at: SystemTime::UNIX_EPOCH + row.created,
            visible_at: SystemTime::UNIX_EPOCH + row.visible,
            failure_count: row.failures,
            payload: json("null"),
            carry: row.carry.as_deref().map(json),
        }
    }

    fn settle(&mut self, settle: &Settle) -> Vec<(RunId, Settled)> {
        let brief = settle.brief;
        assert!(!brief || settle.rows.iter().all(|row| row.outcome == Ending::Completed), "{settle:?}");
        let answers = settle.rows.iter().map(|row| (row.id, self.settle_one(&settle.worker, row)));
        answers.filter(|(_, answer)| !brief || *answer == Settled::Accepted).collect()
    }

    fn settle_one(&mut self, worker: &str, it: &Settlement) -> Settled {
        let now = self.now;
        if !self.live.get(&it.id.job).is_some_and(|row| row.is_of(it.id.run, worker)) {
            let landed =
                self.journal.iter().find(|entry| entry.id == it.id && entry.by == worker).map(|entry| entry.what);
            return match landed {
                Some(what) if what == it.outcome.name() => Settled::Landed,
                Some("completed") => Settled::Completed,
                _ => Settled::Refused,
            };
        }
        if self.locked.contains(&it.id.job) {
            return Settled::Busy;
        }
        let cancelled = self.live.get(&it.id.job).is_some_and(|row| row.cancel_requested);
        let outcome = if cancelled && it.outcome != Ending::Completed { Ending::Cancelled } else { it.outcome };
        self.journal.push(Entry { id: it.id, by: worker.to_owned(), what: outcome.name() });
        let row = self.live.get_mut(&it.id.job).unwrap();
        row.failures += i32::from(matches!(outcome, Ending::Dead | Ending::Retried));
        match outcome {
            Ending::Completed | Ending::Dead | Ending::Cancelled => {
                let row = self.live.remove(&it.id.job).unwrap();
                self.finished.insert(it.id.job, (row, outcome.name()));
            }
            Ending::Retried | Ending::Paused | Ending::Released => {
                row.state = if it.delay > 0.0 { State::Scheduled } else { State::Ready };
                row.visible = now + Duration::from_secs_f64(it.delay);
                if outcome != Ending::Released {
                    row.carry = it.carry.as_ref().map(|json| json.get().to_owned()).or(row.carry.take());
                }
            }
        }
        Settled::Accepted
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> bool {
        let Some(row) = self.live.get_mut(&checkpoint.id.job) else { return false };
        let ours = row.is_of(checkpoint.id.run, &checkpoint.worker);
        if ours {
            row.carry = Some(checkpoint.carry.get().to_owned());
        }
        ours
    }

    fn expired(&self, row: &Row, but: &str) -> Option<String> {
        match &row.state {
            State::Claimed { by, expires } if *expires < self.now && by != but => Some(by.clone()),
            _ => None,
        }
    }

    fn any_stale(&self, worker: &str) -> bool {
        self.live.values().any(|row| self.expired(row, worker).is_some())
    }

    fn stale(&self, stale: &Stale) -> Vec<StaleRow> {
        let rows = self.live.iter().filter_map(|(id, row)| {
            let claimed_by = self.expired(row, &stale.worker)?;
            let id = RunId { job: *id, run: row.run_count };
            Some(StaleRow { id, kind: row.kind.to_owned(), failure_count: row.failures, claimed_by })
        });
        rows.take(usize::try_from(stale.most).unwrap()).collect()
    }

    fn recover(&mut self, recover: &Recover) -> Vec<Recovered> {
        let now = self.now;
        let mut done = Vec::new();
        for it in &recover.rows {
            let Some(row) = self.live.get(&it.id.job) else { continue };
            let locked = self.locked.contains(&it.id.job);
            if locked || row.run_count != it.id.run || self.expired(row, "").as_deref() != Some(&it.claimed_by) {
                continue;
            }
            self.journal.push(Entry { id: it.id, by: it.claimed_by.clone(), what: "stale-recovered" });
            let row = self.live.get_mut(&it.id.job).unwrap();
            row.failures += 1;
            row.state = if it.delay > 0.0 { State::Scheduled } else { State::Ready };
            row.visible = now + Duration::from_secs_f64(it.delay);
            done.push(Recovered { job: it.id.job, kind: row.kind.to_owned(), dead: it.dead, delay: it.delay });
            if it.dead {
                let row = self.live.remove(&it.id.job).unwrap();
                self.finished.insert(it.id.job, (row, "dead"));
            }
        }
        done
    }

    fn promote(&mut self, promote: &Promote) -> Reply {
        let (now, mut promoted) = (self.now, 0);
        for row in self.live.values_mut() {
            if promote.kinds.contains(&row.kind) && row.state == State::Scheduled && row.visible <= now {
                row.state = State::Ready;
                promoted += 1;
            }
        }
        Reply::Promoted { promoted, more_due: false, next_due: self.next_due(&promote.kinds) }
    }

    fn next_due(&self, kinds: &[&'static str]) -> Option<f64> {
        let rows = self
            .live
            .values()
            .filter(|row| kinds.contains(&row.kind) && row.state == State::Scheduled && row.visible > self.now);
        rows.map(|row| (row.visible - self.now).as_secs_f64()).min_by(f64::total_cmp)
    }

    fn survey(&self, survey: &Survey) -> SurveyReply {
        let ours = || self.live.values().filter(|row| survey.kinds.contains(&row.kind));
        let expiry = |row: &Row| match &row.state {
            State::Claimed { by, expires } if *by != *survey.worker && *expires >= self.now => {
                Some((*expires - self.now).as_secs_f64()).filter(|seconds| *seconds <= survey.horizon)
            }
            _ => None,
        };
        SurveyReply {
            ready: ours().any(|row| row.state == State::Ready),
            due: ours().any(|row| row.state == State::Scheduled && row.visible <= self.now),
            stale: self.any_stale(&survey.worker),
            next_due: self.next_due(&survey.kinds),
            next_expiry: self.live.values().filter_map(expiry).min_by(f64::total_cmp),
        }
    }

    fn renew(&mut self, renew: &Renew) -> Vec<(RunId, bool)> {
        let now = self.now;
        let mut done = Vec::new();
        for (id, lease) in &renew.rows {
            let ours = |row: &&mut Row| row.is_of(id.run, &renew.worker) && !self.locked.contains(&id.job);
            let Some(row) = self.live.get_mut(&id.job).filter(ours) else { continue };
            let expires = now + Duration::from_secs_f64(*lease);
            row.state = State::Claimed { by: renew.worker.to_string(), expires };
            done.push((*id, row.cancel_requested));
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

    fn completed(&self, id: RunId, worker: &str) -> bool {
        self.journal.iter().any(|entry| entry.id == id && entry.by == worker && entry.what == "completed")
    }

    /// A handler's transaction that completes its job is committed; says whether the job was still the run's.
    pub(super) fn complete(&mut self, id: RunId, worker: &str) -> bool {
        self.locked.remove(&id.job);
        if !self.live.get(&id.job).is_some_and(|row| row.is_of(id.run, worker)) {
            return false;
        }
        self.journal.push(Entry { id, by: worker.to_owned(), what: "completed" });
        let row = self.live.remove(&id.job).unwrap();
        self.finished.insert(id.job, (row, "completed"));
        true
    }
}
