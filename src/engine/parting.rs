//! Settling over a connection of its own, beside the claims, so that a second core of the server does a part of the work.
//!
//! Only completions go over it: nobody claims their jobs again, so it does not matter which of a claim and a settlement the
//! server sees first. While the link is down they go with the claims, like everything else.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use super::purpose::{Exchange, Purpose};
use super::settling::Share;
use super::{Engine, Link, Output};
use crate::job::RunId;
use crate::statement::Statement;
use crate::time::sooner;

impl Engine {
    /// Which results the work link carries now.
    pub(super) fn share_of_work(&self) -> Share {
        if self.settle.is_up() { Share::Others } else { Share::All }
    }

    /// Nothing is on its way over the settle link.
    pub(super) fn settle_link_is_quiet(&self) -> bool {
        self.settle.purpose().is_none()
    }

    pub(super) fn drive_settle(&mut self, now: Instant) {
        if !self.has_settle_link() {
            return;
        }
        if let Some(epoch) = self.settle.connect(now) {
            self.outbox.push_back(Output::Connect(Link::Settle, epoch));
        }
        if !self.may_settle_apart(now) || self.gathers_until(now).is_some() {
            return;
        }
        let rows = self.settling.batch(now, Share::Completions);
        let settled: Vec<RunId> = rows.iter().map(|row| row.id).collect();
        if let Some(settle) = self.settle_statement(rows) {
            let statement = Statement::Exchange { settle: Some(settle), claim: None };
            let sent = Exchange { settled, share: Share::Completions, claim: None };
            self.execute(now, Link::Settle, statement, Purpose::Exchange(sent));
        }
    }

    /// The work link comes first: it finds out whether there is anything to do at all.
    fn has_settle_link(&self) -> bool {
        self.rules.config.connections > 1 && self.work.proven && !self.is_stopped()
    }

    /// Not while the claims are compared with the server's, for a row that is settled meanwhile would look lost; and not
    /// while the work link still has what it took before this link came up.
    fn may_settle_apart(&self, now: Instant) -> bool {
        let work_is_in_the_way = match self.work.purpose() {
            Some(Purpose::Held) => true,
            Some(Purpose::Exchange(sent)) => sent.share == Share::All && !sent.settled.is_empty(),
            _ => false,
        };
        self.settle.is_idle() && !work_is_in_the_way && !(self.work.is_up() && self.wants_to_compare(now))
    }

    pub(super) fn settle_deadline(&self) -> Option<Instant> {
        if !self.has_settle_link() {
            return None;
        }
        let apart = self.settling.deadline(Share::Completions).filter(|_| self.may_settle_apart(self.advanced_to));
        sooner(self.settle.deadline(), apart)
    }
}
