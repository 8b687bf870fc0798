//! What is done to jobs from outside their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Row, Server, State, seconds_to};
use crate::job::RunId;
use crate::job_info::JobStatus;
use crate::statement::{CancelAnswer, CleanupBatch, Deleted, Finding, Inquiry, RequeueAnswer, Touch};

impl Server {
    pub(super) fn inquire(&mut self, inquiry: &Inquiry) -> Finding {
        match inquiry {
            Inquiry::Cancellations { worker, runs } => {
                let asked = |id: &&RunId| {
                    let row = self.live.get(&id.job);
                    row.is_some_and(|row| row.cancel_requested && row.is_of(id.run, worker))
                };
                Finding::Cancellations(runs.iter().filter(asked).copied().collect())
            }
            Inquiry::Cleanup(batch) => Finding::Deleted(self.cleanup(batch)),
            Inquiry::Cancel(cancel) => {
                let ids: BTreeSet<i64> = cancel.ids.iter().copied().collect();
                Finding::Cancelled(ids.into_iter().map(|id| (id, self.cancel(id, cancel))).collect())
            }
            Inquiry::Requeue(requeue) => Finding::Requeued(self.requeue(requeue)),
            Inquiry::PauseKind(kind) => Finding::Switched(self.paused_kinds.insert(kind.clone())),
            Inquiry::ResumeKind(kind) => Finding::Switched(self.paused_kinds.remove(kind)),
            other => panic!("not modelled: {other:?}"),
        }
    }

    fn cleanup(&mut self, batch: &CleanupBatch) -> Deleted {
        self.sweeps.push((self.now, batch.clone()));
        let most = u64::from(batch.most.unsigned_abs());
        let unknown = self.to_delete.min(most);
        self.to_delete -= unknown;
        let is_old = |row: &Row| row.ended.as_secs_f64() >= batch.from && seconds_to(self.now, row.ended) > batch.age;
        let of_status = self.finished.iter().filter(|(_, (_, how))| *how == batch.status.as_str());
        let mut old: Vec<(Duration, i64)> =
            of_status.filter(|(_, (row, _))| is_old(row)).map(|(id, (row, _))| (row.ended, *id)).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(most - unknown).unwrap());
        for (_, id) in &old {
            self.finished.remove(id);
            self.discarded.insert(*id);
        }
        let reached = old.last().map(|(ended, _)| ended.as_secs_f64());
        let jobs = unknown + u64::try_from(old.len()).unwrap();
        Deleted { jobs, reached: reached.or((unknown > 0).then_some(1.0)) }
    }

    /// What a queue does to a running job; says whether it runs.
    pub(crate) fn request_cancel(&mut self, job: i64) -> bool {
        let running = self.live.get_mut(&job).filter(|row| row.is_claimed());
        running.map(|row| row.cancel_requested = true).is_some()
    }

    fn cancel(&mut self, id: i64, cancel: &Touch) -> CancelAnswer {
        let Some(row) = self.live.get_mut(&id) else {
            let known = self.finished.contains_key(&id);
            return if known { CancelAnswer::Finished } else { CancelAnswer::NotThere };
        };
        let status = if row.is_claimed() { JobStatus::Claimed } else { JobStatus::Pending };
        if !cancel.statuses.contains(&status) {
            return CancelAnswer::NotTouched;
        }
        if self.locked.contains(&id) {
            return CancelAnswer::Busy;
        }
        if status == JobStatus::Claimed {
            row.cancel_requested = true;
            return CancelAnswer::Requested;
        }
        let row = self.live.remove(&id).unwrap();
        self.events.push((id, row.run_count, "cancelled"));
        self.finish_as(id, row, "cancelled");
        CancelAnswer::Cancelled
    }

    fn requeue(&mut self, requeue: &Touch) -> Vec<(i64, RequeueAnswer)> {
        let ids: BTreeSet<i64> = requeue.ids.iter().copied().collect();
        let may = |status: &str| requeue.statuses.iter().any(|it| it.to_string() == status);
        let heirs: BTreeMap<i64, i64> = ids
            .iter()
            .filter_map(|id| self.finished.get(id).filter(|(_, status)| may(status)).map(|(row, _)| (*id, row)))
            .map(|(id, row)| (id, self.heir(id, row, &ids, &may)))
            .collect();
        ids.iter().map(|id| (*id, self.requeue_one(*id, heirs.get(id).copied()))).collect()
    }

    /// The job that is pending with this one's key when all of them have come back.
    fn heir(&self, id: i64, row: &Row, ids: &BTreeSet<i64>, may: &impl Fn(&str) -> bool) -> i64 {
        if row.key.is_none() {
            return id;
        }
        let same = |other: &Row| other.kind == row.kind && other.key == row.key;
        let pending = self.live.iter().filter(|(_, other)| same(other) && !other.is_claimed());
        let first_back =
            || ids.iter().find(|id| self.finished.get(id).is_some_and(|(other, how)| same(other) && may(how)));
        pending
            .min_by_key(|(id, other)| (other.created, **id))
            .map(|(id, _)| *id)
            .or_else(|| first_back().copied())
            .unwrap()
    }

    fn requeue_one(&mut self, id: i64, heir: Option<i64>) -> RequeueAnswer {
        match heir {
            Some(heir) if heir != id => return RequeueAnswer::Conflict(heir),
            None if self.finished.contains_key(&id) => return RequeueAnswer::NotTouched,
            None if self.live.contains_key(&id) => return RequeueAnswer::NotFinished,
            None => return RequeueAnswer::NotThere,
            Some(_) => {}
        }
        let (row, how) = self.finished.remove(&id).unwrap();
        self.events.push((id, row.run_count, "requeued"));
        let kind = row.kind.to_owned();
        let row = Row {
            visible: self.now,
            state: State::Ready,
            failures: 0,
            carry: row.carry.filter(|_| how != "completed"),
            cancel_requested: false,
            version: self.next_version(),
            ..row
        };
        self.live.insert(id, row);
        RequeueAnswer::Requeued(kind)
    }
}
