//! One round of an enqueue with a dedup key, as the function `enqueue_keyed` does it; nothing here waits for a lock.

use std::time::{Duration, SystemTime};

use super::{Row, Server, State, due, seconds_to};
use crate::Effect;
use crate::statement::{Candidate, Decision, Found, KeyedAnswer, KeyedJob};

impl Server {
    pub(crate) fn enqueue_keyed(&mut self, it: &KeyedJob) -> KeyedAnswer {
        let due = due(&it.job, self.now);
        let Some(key) = &it.job.dedup_key else { return self.insert_keyed(it, due) };
        let pending = self.pending(&it.job.kind, key, &it.skip);
        let expected = it.stance.as_ref().map(|stance| stance.expected.as_str());
        let decision = it.stance.as_ref().map(|stance| &stance.decision);
        match (pending, expected, decision) {
            (None, None | Some("*"), _) => self.insert_keyed(it, due),
            (Some((id, version)), Some(expected), Some(decision)) if expected == version || expected == "*" => {
                match decision {
                    // Whatever was decided, it is made sure that it stays true.
                    _ if self.locked.contains(&id) => KeyedAnswer::Busy,
                    Decision::Independent => self.insert_keyed(it, due),
                    Decision::Keep => self.keep(id),
                    Decision::Replace | Decision::With(_) => self.merge(id, it, decision, due),
                }
            }
            (pending, ..) => KeyedAnswer::Changed(pending.map(|(id, version)| self.candidate(id, version))),
        }
    }

    /// The oldest pending job of the kind with the key, and its version.
    fn pending(&self, kind: &str, key: &str, skip: &[i64]) -> Option<(i64, String)> {
        let fits = |(id, row): &(&i64, &Row)| {
            row.kind == kind && row.key.as_deref() == Some(key) && !row.is_claimed() && !skip.contains(id)
        };
        let oldest = self.live.iter().filter(fits).min_by_key(|(id, row)| (row.created, **id));
        oldest.map(|(id, row)| (*id, row.version.to_string()))
    }

    fn candidate(&self, id: i64, version: String) -> Candidate {
        let row = &self.live[&id];
        let found = Found {
            payload: row.payload.clone(),
            carry: row.carry.clone(),
            priority: row.priority,
            created_at: SystemTime::UNIX_EPOCH + row.created,
            visible_at: SystemTime::UNIX_EPOCH + row.visible,
            run_count: row.run_count,
            failure_count: row.failures,
        };
        Candidate { id, version, found: Ok(found) }
    }

    fn insert_keyed(&mut self, it: &KeyedJob, due: Duration) -> KeyedAnswer {
        let id = self.insert(&it.job, due);
        KeyedAnswer::Stored { id, effect: Effect::Inserted, due_in: seconds_to(due, self.now), wakes: true }
    }

    fn keep(&mut self, id: i64) -> KeyedAnswer {
        let row = &self.live[&id];
        self.events.push((id, row.run_count, "merged"));
        KeyedAnswer::Stored { id, effect: Effect::Kept, due_in: self.due_in(id), wakes: false }
    }

    fn merge(&mut self, id: i64, it: &KeyedJob, decision: &Decision, due: Duration) -> KeyedAnswer {
        let (now, version) = (self.now, self.next_version());
        let row = self.live.get_mut(&id).unwrap();
        let due = due.min(row.visible);
        let wakes = due < row.visible || it.job.priority < row.priority;
        row.visible = due;
        row.version = version;
        row.state = if due > now { State::Scheduled } else { State::Ready };
        row.payload = it.job.payload.get().to_owned();
        row.trace = it.job.trace.clone().or(row.trace.take());
        let effect = if let Decision::With(carry) = decision {
            row.priority = row.priority.min(it.job.priority);
            row.carry = carry.as_ref().map(|json| json.get().to_owned()).or(row.carry.take());
            Effect::Merged
        } else {
            (row.priority, row.carry, row.failures) = (it.job.priority, None, 0);
            Effect::Replaced
        };
        self.events.push((id, self.live[&id].run_count, "merged"));
        KeyedAnswer::Stored { id, effect, due_in: self.due_in(id), wakes }
    }

    fn due_in(&self, id: i64) -> f64 {
        seconds_to(self.live[&id].visible, self.now).max(0.0)
    }
}
