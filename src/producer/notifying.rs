//! What workers are told about the rows that a queue has stored.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::notification;
use crate::statement::Statement;
use crate::time::seconds;

use super::Producer;

impl Producer {
    /// One notification for everything stored since the last: kinds that are ready, else those that will be due.
    pub(super) fn notification(&mut self) -> Statement {
        let soonest = self.due.values().copied().fold(f64::INFINITY, f64::min);
        let due_in = if self.ready.is_empty() { seconds(soonest) } else { Duration::ZERO };
        let mut kinds = std::mem::take(&mut self.ready);
        kinds.extend(std::mem::take(&mut self.due).into_keys());
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        Statement::Notify { channel: self.channel.clone(), payload: notification::encode(&kinds, due_in) }
    }

    pub(super) fn announce(&mut self, kind: String, delay: f64) {
        if delay > 0.0 {
            let soonest = self.due.entry(kind).or_insert(delay);
            *soonest = soonest.min(delay);
        } else {
            self.ready.insert(kind);
        }
    }
}
