//! What workers are told about the rows that a queue has stored.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::statement::Notify;
use crate::time::seconds;

use super::Producer;
use super::call::{CallId, Response};

impl Producer {
    /// One notification for everything stored since the last: kinds that are ready, else those that will be due, else
    /// none in anybody's lifetime.
    fn notification(&mut self) -> Notify {
        let soonest = self.due.values().copied().fold(f64::INFINITY, f64::min);
        let due_in = if self.ready.is_empty() { seconds(soonest) } else { Duration::ZERO };
        let mut kinds = std::mem::take(&mut self.ready);
        kinds.extend(std::mem::take(&mut self.due).into_keys());
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let cancelled: Vec<i64> = std::mem::take(&mut self.cancelled).into_iter().collect();
        Notify::new(&self.channel, &kinds, due_in, &cancelled)
    }

    /// What to send now, and whom to answer then.
    pub(super) fn next_notification(&mut self) -> Option<(Vec<(CallId, Response)>, Notify)> {
        self.untold.take().or_else(|| {
            let answers = std::mem::take(&mut self.stored);
            (!answers.is_empty()).then(|| (answers, self.notification()))
        })
    }

    /// The rows are committed. To ask who is interested may be what was refused (no right to, or no memory for locks), so
    /// everybody is told instead; if that fails too, workers find the rows when they poll.
    pub(super) fn notification_failed(&mut self, answers: Vec<(CallId, Response)>, notify: Notify) {
        if self.link.is_up() && !notify.keys.is_empty() {
            self.untold = Some((answers, Notify { keys: Vec::new(), ..notify }));
        } else {
            self.answer_all(answers);
        }
    }

    /// Answers, once workers have been told if there is anything to tell.
    pub(super) fn conclude(&mut self, id: CallId, response: Response) {
        if self.has_news() {
            self.stored.push((id, response));
        } else {
            self.answer(id, Ok(response));
        }
    }

    fn has_news(&self) -> bool {
        !self.ready.is_empty() || !self.due.is_empty() || !self.cancelled.is_empty()
    }

    pub(super) fn announce(&mut self, kind: &str, due_in: f64) {
        if due_in <= 0.0 {
            if !self.ready.contains(kind) {
                self.ready.insert(kind.to_owned());
            }
        } else if let Some(soonest) = self.due.get_mut(kind) {
            *soonest = soonest.min(due_in);
        } else {
            self.due.insert(kind.to_owned(), due_in);
        }
    }
}
