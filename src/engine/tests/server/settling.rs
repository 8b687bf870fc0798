//! Storing what runs have left.

use std::time::Duration;

use super::{Entry, Flaw, Row, Server, State};
use crate::job::RunId;
use crate::statement::{Ending, Settle, Settled, Settlement};

impl Server {
    pub(super) fn settle(&mut self, settle: &Settle) -> Vec<(RunId, Settled)> {
        let brief = settle.brief;
        assert!(!brief || settle.rows.iter().all(|row| row.outcome == Ending::Completed), "{settle:?}");
        let mut rows: Vec<&Settlement> = settle.rows.iter().collect();
        rows.sort_by_key(|row| row.id);
        let answers = rows.into_iter().map(|row| (row.id, self.settle_one(settle, row)));
        answers.filter(|(_, answer)| !brief || *answer == Settled::Accepted).collect()
    }

    fn settle_one(&mut self, settle: &Settle, it: &Settlement) -> Settled {
        let ours = |row: &Row| match self.flaw {
            Some(Flaw::NoFence) => row.run_count >= it.id.run,
            _ => row.is_of(it.id.run, &settle.worker),
        };
        let Some(row) = self.live.get(&it.id.job).filter(|row| ours(row)) else {
            return self.settled_before(settle, it);
        };
        if self.locked.contains(&it.id.job) {
            return Settled::Busy;
        }
        let outcome = match it.outcome {
            Ending::Completed => Ending::Completed,
            _ if row.cancel_requested => Ending::Cancelled,
            other => other,
        };
        self.journal.push(Entry { id: it.id, by: settle.worker.to_string(), what: outcome.name() });
        match outcome {
            Ending::Completed | Ending::Dead | Ending::Cancelled => self.finish(it, outcome, settle.discard),
            Ending::Retried | Ending::Paused | Ending::Released => self.put_back(it, outcome),
        }
        if outcome == Ending::Cancelled { Settled::Cancelled } else { Settled::Accepted }
    }

    /// What to say of a result whose claim is not its worker's any more.
    fn settled_before(&self, settle: &Settle, it: &Settlement) -> Settled {
        let there = self.live.contains_key(&it.id.job) || self.finished.contains_key(&it.id.job);
        match self.entry(it.id, &settle.worker) {
            Some("cancelled") if it.outcome != Ending::Completed => Settled::Cancelled,
            Some(what) if what == it.outcome.name() => Settled::Landed,
            Some("completed") => Settled::Completed,
            None if settle.discard && it.outcome == Ending::Completed && !there => Settled::Landed,
            _ => Settled::Refused,
        }
    }

    fn finish(&mut self, it: &Settlement, outcome: Ending, discard: bool) {
        let mut row = self.live.remove(&it.id.job).unwrap();
        if outcome == Ending::Completed && discard {
            self.discarded.insert(it.id.job);
            return;
        }
        if outcome == Ending::Dead {
            row.failures += 1;
            row.carry = it.carry.as_ref().map(|json| json.get().to_owned()).or(row.carry);
        }
        self.finish_as(it.id.job, row, outcome.name());
    }

    fn put_back(&mut self, it: &Settlement, outcome: Ending) {
        let (now, version) = (self.now, self.next_version());
        let row = self.live.get_mut(&it.id.job).unwrap();
        let delay = if outcome == Ending::Released { 0.0 } else { it.delay };
        row.failures += i32::from(outcome == Ending::Retried);
        row.state = if delay > 0.0 { State::Scheduled } else { State::Ready };
        row.visible = now + Duration::from_secs_f64(delay);
        row.version = version;
        if outcome != Ending::Released {
            row.carry = it.carry.as_ref().map(|json| json.get().to_owned()).or(row.carry.take());
        }
        if self.flaw == Some(Flaw::LosesRetried) && outcome == Ending::Retried {
            self.live.remove(&it.id.job);
        }
    }

    /// A handler's transaction that completes its job is committed; says whether the job was still the run's.
    pub(crate) fn complete(&mut self, id: RunId, worker: &str) -> bool {
        self.locked.remove(&id.job);
        if !self.live.get(&id.job).is_some_and(|row| row.is_of(id.run, worker)) {
            return false;
        }
        self.journal.push(Entry { id, by: worker.to_owned(), what: "completed" });
        let row = self.live.remove(&id.job).unwrap();
        self.finish_as(id.job, row, "completed");
        true
    }
}
