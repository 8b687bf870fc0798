//! Keeping claims alive, and finding out which are not this worker's any more.
//!
//! A renewal is the only heartbeat: it goes on in every state until the handler has really ended. A claim that a
//! renewal missed is not called lost before a read, serialised with the worker's own claims and settlements, has
//! confirmed it. The same read finds rows that a claim took whose reply never came, and tells the jobs that handlers have
//! completed in transactions of their own, whose rows are gone without being lost.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::purpose::Purpose;
use super::runs::{Abort, Row, Run, Work};
use super::{Engine, Link, Output};
use crate::cancellation::CancelReason;
use crate::job::{ClaimedJob, RunId};
use crate::link::{LinkState, STATEMENT_DEADLINE};
use crate::observer::Event;
use crate::statement::{Held, Renew, Statement};
use crate::time::{later, sooner};

/// A lease is renewed when a third of it has passed, so that two renewals may fail before it runs out.
const RENEWALS_PER_LEASE: u32 = 3;

/// The shortest time between two renewals, whatever the lease.
const MIN_INTERVAL: Duration = Duration::from_millis(300);

/// How long recovery waits at least after this worker's own link came back: others need that time to come back too.
/// See [`Hold`](super::hold::Hold).
const RECOVERY_HOLD: Duration = Duration::from_secs(10);

/// How often the server's view is compared with ours after a reply was lost: once at once, and again later, because
/// a connection that is dead for us may still commit what it was sent.
const RECONCILIATIONS: u32 = 3;

/// The shortest time between two of them. Together they last as long as the server may still work on a statement whose
/// connection is gone, or a claim that takes effect after the last of them would be nobody's while this worker lives.
const MIN_RECONCILIATION: Duration =
    Duration::from_secs(STATEMENT_DEADLINE.as_secs().div_ceil(RECONCILIATIONS as u64 - 1));

#[derive(Debug, Default)]
pub(super) struct Leases {
    renew_at: Option<Instant>,
    failing: bool,
    reconcile_at: Option<Instant>,
    reconciliations: u32,
    /// A claim was sent whose reply was lost: rows may be claimed that nobody here knows of.
    claim_unheard: bool,
}

impl Leases {
    /// Whether rows may be claimed for this worker that it does not know of.
    pub(super) fn in_doubt(&self) -> bool {
        self.claim_unheard
    }

    pub(super) fn doubt_no_more(&mut self) {
        self.claim_unheard = false;
    }
}

impl Engine {
    /// Enters a claimed job as a run; says whether its start has to be reported.
    pub(super) fn enroll(&mut self, now: Instant, kind: usize, job: &ClaimedJob) -> bool {
        let Some(rule) = self.rule(kind) else { return false };
        let (blocking, timeout) = (rule.blocking, rule.timeout);
        let renewal = later(now, rule.lease / RENEWALS_PER_LEASE);
        self.runs.insert(
            job.id,
            Run {
                kind,
                blocking,
                failure_count: job.failure_count,
                work: Work::Going,
                row: Row::Held,
                superseded: false,
                spoke_late: false,
                abort: None,
                times_out_at: None,
                patience_ends_at: None,
                started_at: now,
                ran: Duration::ZERO,
            },
        );
        self.watch_for_cancellations(now);
        if self.rules.config.renew_leases {
            self.leases.renew_at = sooner(self.leases.renew_at, Some(renewal));
        }
        timeout.is_some()
    }

    pub(super) fn lease_deadline(&self) -> Option<Instant> {
        let renewal = self.leases.renew_at.filter(|_| self.may_renew());
        sooner(renewal, self.leases.reconcile_at.filter(|_| self.work.is_idle() && self.settle_link_is_quiet()))
    }

    /// The link that renews: while the watch link is down, the work link takes it on.
    fn renewal_link(&self) -> (Link, &LinkState<Purpose>) {
        if self.watch.is_up() { (Link::Watch, &self.watch) } else { (Link::Work, &self.work) }
    }

    /// Whatever else the server has refused holds no renewal up; only a renewal that was refused waits like all others.
    fn may_renew(&self) -> bool {
        let (_, link) = self.renewal_link();
        if self.leases.failing { link.is_idle() } else { link.is_free() }
    }

    /// The renewal to send now over `link`.
    pub(super) fn renewal_due(&mut self, now: Instant, link: Link) -> Option<(Statement, Purpose)> {
        if self.renewal_link().0 != link || !self.may_renew() || self.leases.renew_at.is_none_or(|at| at > now) {
            return None;
        }
        let held = || self.runs.iter().filter(|(_, run)| is_renewed(run));
        let rows: Vec<(RunId, f64)> =
            held().filter_map(|(id, run)| self.rule(run.kind).map(|rule| (id, rule.lease.as_secs_f64()))).collect();
        let shortest = held().filter_map(|(_, run)| self.rule(run.kind)).map(|rule| rule.lease).min();
        self.leases.renew_at = shortest.map(|lease| later(now, (lease / RENEWALS_PER_LEASE).max(MIN_INTERVAL)));
        let ids: Vec<RunId> = rows.iter().map(|(id, _)| *id).collect();
        // The claims whose renewal failed have ended: nothing is left that could tell when it works again.
        self.leases.failing &= !ids.is_empty();
        let statement = Statement::Renew(Renew { worker: self.rules.worker.clone(), rows });
        (!ids.is_empty()).then_some((statement, Purpose::Renew(ids)))
    }

    pub(super) fn renewed(&mut self, now: Instant, asked: &[RunId], renewed: &[(RunId, bool)]) {
        self.leases.failing = false;
        let mut missed = false;
        let renewed: BTreeMap<RunId, bool> = renewed.iter().copied().collect();
        for id in asked {
            let found = renewed.get(id);
            let Some(run) = self.runs.get(*id) else { continue };
            // A read must confirm that its claim is lost.
            missed |= found.is_none() && run.row == Row::Held;
            if found.is_some_and(|cancel| *cancel) {
                self.outbox.push_back(Output::Cancel(*id, CancelReason::Requested));
            }
        }
        if missed {
            self.reconcile(now);
        }
    }

    /// A renewal failed: try again soon, and recover nobody's claims while our own cannot be renewed.
    pub(super) fn renewal_failed(&mut self, now: Instant) {
        self.leases.failing = true;
        self.leases.renew_at = sooner(self.leases.renew_at, Some(later(now, MIN_INTERVAL)));
    }

    pub(super) fn recovery_allowed_by_renewals(&self) -> bool {
        !self.leases.failing
    }

    /// The reply to this was lost: what the server did is not known.
    pub(super) fn doubt_claims(&mut self, now: Instant, unanswered: &Purpose) {
        self.leases.reconcile_at = Some(now);
        self.leases.reconciliations = RECONCILIATIONS;
        self.leases.claim_unheard |= matches!(unanswered, Purpose::Exchange(it) if it.claim.is_some());
    }

    /// After this worker's own outage others had theirs too, and need time to renew.
    pub(super) fn hold_recovery(&mut self, now: Instant) {
        self.claiming.recovery_hold.back(now, self.renewal_interval().max(RECOVERY_HOLD));
        self.leases.renew_at = self.leases.renew_at.map(|_| now);
    }

    fn renewal_interval(&self) -> Duration {
        let shortest = self.rules.kinds.iter().map(|rule| rule.lease).min();
        shortest.unwrap_or(self.rules.config.lease) / RENEWALS_PER_LEASE
    }

    pub(super) fn reconciliation_due(&mut self, now: Instant) -> bool {
        if !self.wants_to_compare(now) || !self.settle_link_is_quiet() {
            return false;
        }
        self.leases.reconciliations = self.leases.reconciliations.saturating_sub(1);
        let again = later(now, self.renewal_interval().clamp(MIN_RECONCILIATION, Duration::from_secs(60)));
        self.leases.reconcile_at = (self.leases.reconciliations > 0).then_some(again);
        true
    }

    /// Whether it is time to compare with the server, as soon as the links are free.
    pub(super) fn wants_to_compare(&self, now: Instant) -> bool {
        self.leases.reconcile_at.is_some_and(|at| at <= now)
    }

    /// Compares with the server as soon as the work link is free.
    pub(super) fn reconcile(&mut self, now: Instant) {
        self.leases.reconcile_at = Some(now);
        self.leases.reconciliations = self.leases.reconciliations.max(1);
    }

    /// Compares what the server says this worker holds with what it knows.
    ///
    /// No claim and no settlement of ours is in flight: claims share the link that this read came from, and settlements
    /// wait for it.
    pub(super) fn reconciled(&mut self, now: Instant, rows: &[(RunId, bool)]) {
        self.leases.doubt_no_more();
        let mut held = BTreeSet::new();
        for (id, completed) in rows {
            if !completed {
                held.insert(*id);
            } else if let Some(run) = self.runs.get_mut(*id).filter(|run| run.row == Row::Held) {
                run.row = Row::Completed;
            }
        }
        let lost: Vec<RunId> =
            self.runs.iter().filter(|(id, run)| run.row == Row::Held && !held.contains(id)).map(|(id, _)| id).collect();
        for id in lost {
            self.claim_lost(now, id);
        }
        for id in held {
            let ours = self.runs.get(id).is_some_and(|run| run.row != Row::Gone) || self.settling.holds(id);
            if !ours {
                self.observe(Event::Orphan { job: id.job_id(), run: id.run_count() });
                self.release_unknown(id, None, "the reply to its claim was lost");
            }
        }
    }

    /// What the server is asked about, to compare.
    pub(super) fn held_statement(&self) -> Statement {
        let runs = self.runs.iter().filter(|(_, run)| run.row == Row::Held).map(|(id, _)| id).collect();
        Statement::Held(Held { worker: self.rules.worker.clone(), runs })
    }

    /// Somebody else has the job now: the handler is told, and what it still returns is discarded.
    fn claim_lost(&mut self, now: Instant, id: RunId) {
        let patience = later(now, self.rules.config.abort_grace);
        let Some(run) = self.runs.get_mut(id) else { return };
        run.row = Row::Gone;
        run.times_out_at = None;
        let (kind, going, blocking) = (run.kind, run.work == Work::Going, run.blocking);
        if going && !blocking && run.abort.is_none() {
            run.patience_ends_at = Some(patience);
            run.abort = Some(Abort::ClaimLost);
        }
        if going {
            self.outbox.push_back(Output::Cancel(id, CancelReason::ClaimLost));
        }
        let kind = self.kind_name(Some(kind));
        self.observe(Event::ClaimLost { job: id.job_id(), run: id.run_count(), kind });
        self.free(id);
    }
}

/// A claim is renewed until its row is settled, except when a future was told to stop and did not: it might hang for
/// ever, and its job with it.
fn is_renewed(run: &Run) -> bool {
    let gave_up = run.abort == Some(Abort::TimedOut) && !run.blocking && run.patience_ends_at.is_none();
    matches!(run.row, Row::Held | Row::Unsettled) && !gave_up
}
