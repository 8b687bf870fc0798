//! What goes wrong with a single statement or notification, because a script says so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::engine::Link;

/// What goes wrong with the next statement on a link.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::tests) enum Mishap {
    /// The link is cut before it has reached the server.
    LostBefore,
    /// The link is cut when the server has executed it.
    LostAfter,
    /// The link is cut at once, and the server executes it so much later.
    LostMeanwhile(Duration),
    Refused,
    Slow(Duration),
}

#[derive(Debug, Default)]
pub(in crate::engine::tests) struct Mishaps {
    statements: BTreeMap<(usize, Link), VecDeque<Mishap>>,
    /// By node: `None` loses the notification, else it is late.
    notifications: BTreeMap<usize, VecDeque<Option<Duration>>>,
}

impl Mishaps {
    pub(in crate::engine::tests) fn befall(&mut self, node: usize, link: Link, mishap: Mishap) {
        self.statements.entry((node, link)).or_default().push_back(mishap);
    }

    pub(in crate::engine::tests) fn befall_notification(&mut self, node: usize, late: Option<Duration>) {
        self.notifications.entry(node).or_default().push_back(late);
    }

    pub(super) fn of_statement(&mut self, node: usize, link: Link) -> Option<Mishap> {
        self.statements.get_mut(&(node, link))?.pop_front()
    }

    /// How late the next notification is; nothing if it is lost.
    pub(super) fn of_notification(&mut self, node: usize) -> Option<Duration> {
        let mishap = self.notifications.get_mut(&node).and_then(VecDeque::pop_front);
        mishap.unwrap_or(Some(Duration::ZERO))
    }
}
