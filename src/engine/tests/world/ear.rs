//! Who hears a notification: sessions that listen, and only if somebody is interested.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Happening, TRIP, World};
use crate::engine::{Input, Link};
use crate::statement::{Notify, Reply, Statement};

/// The channel of all nodes.
pub(super) const CHANNEL: &str = "venturi";

/// What a node's watch link has said in the session of this epoch; the session's end takes it back.
#[derive(Debug, Default)]
pub(super) struct Ear {
    epoch: u64,
    listening: bool,
    interest: BTreeSet<i64>,
}

impl World {
    /// Does what a statement does that is about notifications.
    pub(super) fn heed(&mut self, node: usize, epoch: u64, statement: &Statement) -> Option<Reply> {
        match statement {
            Statement::Notify(notify) => return Some(Reply::Notified(self.notify(notify, Some(node)))),
            Statement::Interest(keys) => self.in_session(node, epoch, |ear| ear.interest.extend(keys)),
            Statement::Listen => self.in_session(node, epoch, |ear| ear.listening = true),
            _ => return None,
        }
        Some(Reply::Done)
    }

    /// Nothing of it stays if the session has ended.
    fn in_session(&mut self, node: usize, epoch: u64, say: impl FnOnce(&mut Ear)) {
        let it = &mut self.nodes[node];
        if it.connected.get(&Link::Watch) != Some(&epoch) {
            return;
        }
        if it.ear.epoch != epoch {
            it.ear = Ear { epoch, ..Ear::default() };
        }
        say(&mut it.ear);
    }

    /// What the session has said that a node has now.
    fn heard_by(&self, node: usize) -> Option<&Ear> {
        let it = &self.nodes[node];
        it.connected.get(&Link::Watch).filter(|epoch| **epoch == it.ear.epoch).map(|_| &it.ear)
    }

    /// A producer tells of jobs that it has stored.
    pub(in crate::engine::tests) fn announce(&mut self, kind: &str, delay: Duration) {
        self.notify(&Notify::new(CHANNEL, &[kind], delay, &[]), None);
    }

    /// As `notify.sql` does it, for a session with or without interests of its own; whether it was sent.
    fn notify(&mut self, notify: &Notify, by: Option<usize>) -> bool {
        let others = (0..self.nodes.len()).filter(|node| Some(*node) != by);
        let mut interests = others.filter_map(|node| self.heard_by(node)).map(|ear| &ear.interest);
        let told = notify.keys.is_empty() || interests.any(|it| notify.keys.iter().any(|key| it.contains(key)));
        if told {
            self.broadcast(&notify.payload);
        }
        told
    }

    /// Whatever anybody is interested in.
    pub(in crate::engine::tests) fn broadcast(&mut self, payload: &str) {
        self.notified += 1;
        for node in 0..self.nodes.len() {
            let listening = self.heard_by(node).is_some_and(|ear| ear.listening);
            if listening && !self.chance(self.faults.notification_lost) {
                if let Some(late) = self.mishaps.of_notification(node) {
                    self.schedule(TRIP + late, Happening::Tell(node, Input::Notified(payload.to_owned())));
                }
            }
        }
    }

    /// The keys that a node's session holds now.
    pub(in crate::engine::tests) fn interests(&self, node: usize) -> usize {
        self.heard_by(node).map_or(0, |ear| ear.interest.len())
    }
}
