//! Taking jobs, and taking them back when a lease has run out.

use std::time::{Duration, SystemTime};

use super::{Entry, Flaw, Row, Server, State, json, seconds_to};
use crate::job::{ClaimedJob, RunId};
use crate::statement::{Claim, ClaimReply, Recover, Recovered, Recovery, Stale, StaleRow};
use crate::{JobStatus, Priority};

/// Whether a bounded claim does not see this row.
fn is_behind(claim: &Claim, kind: &str, id: i64, row: &Row) -> bool {
    let Some(bounds) = &claim.bounds else { return false };
    let nth = claim.kinds.iter().position(|it| *it == kind).unwrap();
    let place = 3 * nth + usize::from(row.priority.code().unsigned_abs());
    bounds.created_at[place].is_some_and(|at| (SystemTime::UNIX_EPOCH + row.created, id) < (at, bounds.ids[place]))
}

impl Server {
    pub(super) fn claim(&mut self, claim: &Claim) -> ClaimReply {
        let depth = claim.want + claim.spare;
        let mut seen: Vec<(Priority, Duration, i64)> = Vec::new();
        for (kind, room) in claim.kinds.iter().zip(&claim.room) {
            let room = if self.flaw == Some(Flaw::NoRoom) { i32::MAX } else { *room };
            let mut of_kind: Vec<_> = self
                .live
                .iter()
                .filter(|(id, row)| row.kind == *kind && row.state == State::Ready && !claim.skip.contains(id))
                .filter(|(_, row)| i32::from(row.priority.code()) >= claim.floor)
                .filter(|(_, row)| !self.paused_kinds.contains(row.kind))
                .filter(|(id, row)| !is_behind(claim, kind, **id, row))
                .map(|(id, row)| (row.priority, row.created, *id))
                .collect();
            of_kind.sort_unstable();
            of_kind.truncate(usize::try_from(room.min(depth)).unwrap());
            seen.extend(of_kind);
        }
        seen.sort_unstable();
        seen.truncate(usize::try_from(depth).unwrap());
        let looked = u64::try_from(seen.len()).unwrap();
        seen.retain(|(_, _, id)| !self.locked.contains(id));
        seen.truncate(usize::try_from(claim.want).unwrap());
        let worker = claim.worker.to_string();
        let jobs: Vec<_> = seen.iter().map(|(_, _, id)| self.take(*id, &worker, claim)).collect();
        if jobs.is_empty() {
            // Rows are what the answer is written on.
            return ClaimReply { jobs, malformed: Vec::new(), looked: 0, stale: false, looked_for: None };
        }
        let looked_for = Some(if claim.bounds.is_some() { self.bounded_look } else { self.full_look });
        let stale = self.any_stale(&worker, claim.look_back);
        if claim.look_back > 0.0 {
            self.glances.push((self.now, claim.look_back));
        }
        ClaimReply { jobs, malformed: Vec::new(), looked, stale, looked_for }
    }

    fn take(&mut self, id: i64, worker: &str, claim: &Claim) -> ClaimedJob {
        let now = self.now;
        let version = self.next_version();
        let row = self.live.get_mut(&id).unwrap();
        let kind = claim.kinds.iter().position(|kind| *kind == row.kind).unwrap();
        row.run_count += 1;
        row.version = version;
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
            claimed_at: SystemTime::UNIX_EPOCH + now,
            trace: row.trace.as_deref().map(Into::into),
            failure_count: row.failures,
            payload: json(&row.payload),
            carry: row.carry.as_deref().map(json),
        }
    }

    fn expired<'a>(&self, row: &'a Row, look_back: f64) -> Option<(Duration, &'a str)> {
        match &row.state {
            State::Claimed { by, expires } if *expires < self.now && seconds_to(self.now, *expires) <= look_back => {
                Some((*expires, by))
            }
            _ => None,
        }
    }

    pub(super) fn any_stale(&self, worker: &str, look_back: f64) -> bool {
        self.live.values().filter_map(|row| self.expired(row, look_back)).any(|(_, by)| by != worker)
    }

    pub(super) fn stale(&self, stale: &Stale) -> Vec<StaleRow> {
        let mut rows: Vec<_> = self
            .live
            .iter()
            .filter_map(|(id, row)| Some((*id, row, self.expired(row, stale.look_back)?)))
            .filter(|(_, _, (_, by))| **by != *stale.worker)
            .collect();
        rows.sort_by_key(|(id, _, (expires, _))| (*expires, *id));
        let found = |(id, row, (_, by)): (i64, &Row, (Duration, &str))| StaleRow {
            id: RunId { job: id, run: row.run_count },
            kind: row.kind.to_owned(),
            failure_count: row.failures,
            claimed_by: by.to_owned(),
        };
        rows.into_iter().take(usize::try_from(stale.most).unwrap()).map(found).collect()
    }

    pub(super) fn recover(&mut self, recover: &Recover) -> Vec<Recovered> {
        recover.rows.iter().filter_map(|row| self.recover_one(row)).collect()
    }

    fn recover_one(&mut self, it: &Recovery) -> Option<Recovered> {
        let row = self.live.get(&it.id.job).filter(|_| !self.locked.contains(&it.id.job))?;
        let (_, by) = self.expired(row, f64::INFINITY)?;
        if row.run_count != it.id.run || by != it.claimed_by {
            return None;
        }
        self.journal.push(Entry { id: it.id, by: it.claimed_by.clone(), what: "stale-recovered" });
        let (now, version) = (self.now, self.next_version());
        let row = self.live.get_mut(&it.id.job)?;
        row.failures += 1;
        row.version = version;
        // Whoever asked for the end gets it, whatever was decided.
        let end = if row.cancel_requested { Some("cancelled") } else { it.dead.then_some("dead") };
        let kind = row.kind.to_owned();
        if let Some(end) = end {
            let row = self.live.remove(&it.id.job)?;
            self.finish_as(it.id.job, row, end);
        } else {
            row.state = if it.delay > 0.0 { State::Scheduled } else { State::Ready };
            row.visible = now + Duration::from_secs_f64(it.delay);
        }
        let status = JobStatus::from_word(end.unwrap_or("pending"))?;
        Some(Recovered { job: it.id.job, kind, status, delay: it.delay })
    }
}
