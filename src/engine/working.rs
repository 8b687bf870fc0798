//! The work link: one statement at a time, the most pressing first.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use super::purpose::{Exchange, Purpose};
use super::watching::INTEREST_AGAIN;
use super::{Engine, Link, Output};
use crate::JobStatus;
use crate::fault::{Fault, FaultKind};
use crate::job::RunId;
use crate::link::{Epoch, StatementId};
use crate::migration::check_version;
use crate::observer::Event;
use crate::recovery::PASS;
use crate::statement::{Finding, Promote, Recover, Recovered, Reply, Stale, Statement, Survey};

impl Engine {
    pub(super) fn connected(&mut self, now: Instant, link: Link, epoch: Epoch) {
        if !self.link(link).is_current(epoch) {
            return;
        }
        let again = self.link(link).proven;
        self.link(link).up();
        self.observe(Event::LinkUp { link: link.name() });
        match link {
            Link::Work if again => {
                self.hold_recovery(now);
                self.claiming.doubt();
                if !self.rules.config.durable_claims {
                    // A crash of the server may have undone claims that it had answered.
                    self.reconcile(now);
                }
            }
            Link::Work | Link::Settle => {}
            Link::Watch => self.watching_again(now),
        }
    }

    pub(super) fn lost(&mut self, now: Instant, link: Link, epoch: Epoch, fault: &Fault) {
        if !self.link(link).is_current(epoch) {
            return;
        }
        if link == Link::Work && !self.work.proven && matches!(fault.kind, FaultKind::Fatal(_)) {
            self.give_up(now, fault.to_error("connecting the worker"));
            return;
        }
        if link == Link::Work {
            self.claiming.recovery_hold.lost(now);
        }
        let (retry_in, purpose) = self.link(link).down(now);
        self.observe(Event::LinkLost { link: link.name(), error: fault.message.clone(), retry_in });
        if let Some(purpose) = purpose {
            if link == Link::Work {
                self.doubt_claims(now, &purpose);
            }
            self.failed_purpose(now, purpose, fault);
        }
    }

    pub(super) fn replied(&mut self, now: Instant, id: StatementId, reply: Result<Reply, Fault>) {
        let Some(link) = Link::ALL.into_iter().find(|link| self.link(*link).is_in_flight(id)) else {
            return;
        };
        if let Err(fault) = &reply {
            if matches!(fault.kind, FaultKind::Link) {
                return self.drop_link(now, link, fault);
            }
        }
        let Some(purpose) = self.link(link).take(id) else { return };
        match reply {
            Ok(reply) => {
                self.link(link).healthy();
                self.take_in(now, purpose, reply);
            }
            Err(fault) => self.statement_failed(now, link, purpose, &fault),
        }
    }

    /// The connection is of no more use, whatever it is doing.
    pub(super) fn drop_link(&mut self, now: Instant, link: Link, fault: &Fault) {
        self.outbox.push_back(Output::Disconnect(link));
        let epoch = self.link(link).epoch;
        self.lost(now, link, epoch, fault);
    }

    /// The server has refused a statement, and the connection is as good as before.
    fn statement_failed(&mut self, now: Instant, link: Link, purpose: Purpose, fault: &Fault) {
        let of_record = fault.of_record();
        if matches!(purpose, Purpose::Check) && matches!(of_record.kind, FaultKind::Fatal(_)) {
            self.give_up(now, of_record.to_error("looking for venturi's tables"));
            return;
        }
        // A batch refused for its content is halved and sent again at once; everything else waits a little.
        let bisecting = matches!(fault.kind, FaultKind::Statement)
            && matches!(&purpose, Purpose::Exchange(it) if it.claim.is_none());
        let retry_in = match &purpose {
            _ if bisecting => Duration::ZERO,
            // It keeps nothing else waiting.
            Purpose::Interest => INTEREST_AGAIN,
            _ => self.link(link).pause(now),
        };
        let statement = purpose.name();
        self.observe(Event::StatementFailed { statement, error: fault.message.clone(), retry_in });
        self.failed_purpose(now, purpose, fault);
    }

    /// What was asked for has not happened, or nobody knows; want it again.
    fn failed_purpose(&mut self, now: Instant, purpose: Purpose, fault: &Fault) {
        match purpose {
            Purpose::Check => self.watching.unchecked(),
            Purpose::Pulse => {}
            Purpose::Exchange(Exchange { settled, claim, .. }) => {
                self.exchange_failed(now, &settled, claim.is_some(), fault);
            }
            Purpose::Stale | Purpose::Recover => self.claiming.recover_again(),
            Purpose::Promote => self.claiming.promote_again(),
            Purpose::Survey => self.claiming.survey_again(),
            Purpose::Held => self.reconcile(now),
            Purpose::Interest => self.watching.uninterested(now),
            Purpose::Listen => self.watching.unlistened(),
            Purpose::Renew(_) => self.renewal_failed(now),
            Purpose::Notify(payload) => self.announcement_failed(now, &payload),
            Purpose::Ask(id, ask) => self.ask_failed(id, ask, fault),
            Purpose::Cancellations(runs) => self.cancellations_failed(&runs),
            Purpose::Sweep => self.sweep_failed(now),
        }
    }

    fn take_in(&mut self, now: Instant, purpose: Purpose, reply: Reply) {
        match (purpose, reply) {
            (Purpose::Check, Reply::Version { version, compatible_from }) => {
                self.checked(now, version, compatible_from)
            }
            (Purpose::Exchange(sent), Reply::Exchange { settled, claim }) => {
                self.settled(now, &sent.settled, settled);
                if let (Some(wanted), Some(claim)) = (sent.claim, claim) {
                    self.claimed(now, &wanted, claim);
                    self.settle_early_cancellations();
                }
            }
            (Purpose::Stale, Reply::Stale(rows)) => self.found_stale(rows),
            (Purpose::Recover, Reply::Recovered(rows)) => self.recovered(now, rows),
            (Purpose::Promote, Reply::Promoted { promoted, more_due, next_due }) => {
                self.promoted(now, promoted, more_due, next_due);
            }
            (Purpose::Survey, Reply::Survey(reply)) => self.surveyed(now, &reply),
            (Purpose::Held, Reply::Held(held)) => self.reconciled(now, &held),
            (Purpose::Renew(asked), Reply::Renewed(renewed)) => self.renewed(now, &asked, &renewed),
            (Purpose::Interest, Reply::Done) => self.interested(),
            (Purpose::Listen, Reply::Done) => self.listening(),
            (Purpose::Notify(_), Reply::Notified(true)) | (Purpose::Pulse, Reply::Version { .. }) => {}
            (Purpose::Notify(payload), Reply::Notified(false)) => self.told_nobody(now, &payload),
            (Purpose::Ask(_, ask), reply) => self.ask_answered(ask, reply),
            (Purpose::Cancellations(_), Reply::Inquiry(Finding::Cancellations(runs))) => self.cancel_runs(&runs),
            (Purpose::Sweep, Reply::Inquiry(Finding::Deleted(deleted))) => self.swept(now, deleted),
            (purpose, _) => debug_assert!(false, "the reply fits the statement: {purpose:?}"),
        }
    }

    fn checked(&mut self, now: Instant, version: i32, compatible_from: i32) {
        match check_version(version, compatible_from) {
            Ok(()) => self.watching.checked(),
            Err(error) => self.give_up(now, error),
        }
    }

    fn recovered(&mut self, now: Instant, rows: Vec<Recovered>) {
        for row in rows {
            if row.status == JobStatus::Pending {
                self.announce_repended(now, &row.kind, row.delay);
            }
            self.observe(Event::Recovered { job: row.job.into(), kind: row.kind.into(), status: row.status });
        }
    }

    pub(super) fn drive_work(&mut self, now: Instant) {
        if self.is_stopped() {
            return;
        }
        if let Some(epoch) = self.work.connect(now) {
            self.outbox.push_back(Output::Connect(Link::Work, epoch));
        }
        if let Some((statement, purpose)) = self.next_work(now) {
            self.execute(now, Link::Work, statement, purpose);
        }
    }

    fn next_work(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        if self.work.is_idle() && !self.watching.is_checked() {
            self.watching.checking();
            return Some((Statement::Check, Purpose::Check));
        }
        if let Some(renewal) = self.renewal_due(now, Link::Work) {
            return Some(renewal);
        }
        if !self.work.is_idle() {
            return None;
        }
        if self.reconciliation_due(now) {
            return Some((self.held_statement(), Purpose::Held));
        }
        if let Some(ask) = self.next_ask() {
            return Some(ask);
        }
        if self.is_running() {
            if let Some(upkeep) = self.next_upkeep(now) {
                return Some(upkeep);
            }
        }
        if self.gathers_until(now).is_some() {
            return None;
        }
        self.next_exchange(now).or_else(|| self.next_survey(now))
    }

    /// Recovery and promotion, which make jobs claimable.
    fn next_upkeep(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        let rows = self.claiming.take_recoveries();
        if !rows.is_empty() {
            return Some((Statement::Recover(Recover { rows }), Purpose::Recover));
        }
        let most = PASS;
        if let Some(look_back) = self.stale_due(now) {
            let worker = self.rules.worker.clone();
            return Some((Statement::Stale(Stale { worker, look_back, most }), Purpose::Stale));
        }
        let look_back = self.promotion_due(now)?;
        Some((Statement::Promote(Promote { kinds: self.all_kinds(), look_back, most }), Purpose::Promote))
    }

    fn next_exchange(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        let share = self.share_of_work();
        let batch = self.settling.batch(now, share);
        let held_back = !batch.is_empty() && self.settling.goes_alone();
        let claim = if self.is_running() && !held_back { self.claim_due(now, &batch) } else { None };
        if batch.is_empty() && claim.is_none() {
            return None;
        }
        let settled: Vec<RunId> = batch.iter().map(|it| it.id).collect();
        let (claim, wanted) = claim.unzip();
        let statement = Statement::Exchange { settle: self.settle_statement(batch), claim };
        Some((statement, Purpose::Exchange(Exchange { settled, share, claim: wanted })))
    }

    fn next_survey(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        if !self.is_running() {
            return None;
        }
        let look_back = self.survey_due(now)?;
        let (kinds, worker) = (self.all_kinds(), self.rules.worker.clone());
        let horizon = self.rules.config.poll_max.as_secs_f64();
        let (open, skip) = (self.open_now(), self.left_alone());
        Some((Statement::Survey(Survey { kinds, worker, look_back, horizon, open, skip }), Purpose::Survey))
    }

    pub(super) fn all_kinds(&self) -> Vec<&'static str> {
        self.rules.kinds.iter().map(|rule| rule.kind).collect()
    }
}
