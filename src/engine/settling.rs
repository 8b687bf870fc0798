//! From a run's report to its row: what becomes of the job, and how the result reaches the server whatever happens.
//!
//! A result stays here until the server has accepted or refused it. Sending it again is harmless: the statement is
//! fenced, and tells a result that had landed before from one that came too late.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Engine;
use super::runs::{Abort, Row, Run, Work};
use crate::JournalEvent;
use crate::backoff::Retry;
use crate::config::{DecodePolicy, PanicPolicy};
use crate::fault::{Fault, FaultKind};
use crate::job::RunId;
use crate::limits::MAX_DELAY;
use crate::observer::Event;
use crate::recovery::is_beyond;
use crate::report::{Report, Verdict};
use crate::statement::{Ending, Malformed, Settle, Settled, Settlement};
use crate::text;
use crate::time::{later, sooner};

/// The most results that one statement carries; it bounds the memory and the time of one exchange.
const MAX_BATCH: usize = 1_000;

/// How soon a result is sent again whose row somebody else has locked; mostly that is this worker's own renewal.
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// How often that is doubled: the other one may be a transaction in which a handler completes its job, and that is as
/// long as the handler likes. Six times make 1.3 seconds.
const BUSY_DOUBLINGS: u32 = 6;

/// What a run leaves whose handler forgot to commit, or could not.
const NOT_COMMITTED: &str = "the handler called complete_in and returned Completed, \
    but the transaction was not committed";

#[derive(Debug)]
pub(super) struct Settling {
    /// In boxes: what is removed from a map moves its neighbours.
    results: BTreeMap<RunId, Box<Pending>>,
    /// How many results the next statement may carry; halved when one of a batch is refused for its content.
    limit: usize,
    /// The last exchange failed: results go without a claim, so that a failing claim cannot hold them back.
    alone: bool,
    /// Some results were left without an answer: ask what became of them.
    thorough: bool,
}

#[derive(Debug)]
struct Pending {
    settlement: Settlement,
    /// The job's kind, if it is one of ours.
    kind: Option<usize>,
    tally: Tally,
    not_before: Option<Instant>,
    /// How often somebody else had the row.
    busy: u32,
    /// Note, attachment and carry were given up because the server refused them.
    degraded: bool,
    retry: Option<Retry>,
}

/// Which results go over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    /// Those after which nobody claims the job again.
    Completions,
    /// Those that may make the job claimable. They go with the claims, so that none of these can bring the job back
    /// before the answer tells that its run is over.
    Others,
}

impl Share {
    fn has(self, pending: &Pending) -> bool {
        match self {
            Self::All => true,
            Self::Completions => pending.settlement.outcome == Ending::Completed,
            Self::Others => pending.settlement.outcome != Ending::Completed,
        }
    }
}

/// What a result counts as, once it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tally {
    Settled,
    TimedOut,
    /// The handler says that it has stored its result by itself. What is sent applies only if it has not.
    Confirmed,
    /// Given back without a failure, for this reason.
    Released(&'static str),
}

impl Default for Settling {
    fn default() -> Self {
        Self { results: BTreeMap::new(), limit: MAX_BATCH, alone: false, thorough: false }
    }
}

impl Settling {
    fn add(&mut self, settlement: Settlement, kind: Option<usize>, tally: Tally) {
        let (id, not_before, retry) = (settlement.id, None, None);
        let pending = Pending { settlement, kind, tally, not_before, busy: 0, degraded: false, retry };
        self.results.insert(id, Box::new(pending));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    pub(super) fn holds(&self, id: RunId) -> bool {
        self.results.contains_key(&id)
    }

    pub(super) fn goes_alone(&self) -> bool {
        self.alone
    }

    /// What the next exchange settles, of this share.
    pub(super) fn batch(&mut self, now: Instant, share: Share) -> Vec<Settlement> {
        let sendable = |it: &&mut Box<Pending>| it.not_before.is_none_or(|at| at <= now) && share.has(it);
        let taken = self.results.values_mut().filter(sendable).take(self.limit);
        taken.map(|it| it.settlement.clone()).collect()
    }

    /// The soonest time at which a result of this share that waits may be sent.
    pub(super) fn deadline(&self, share: Share) -> Option<Instant> {
        self.results.values().filter(|it| share.has(it)).map(|it| it.not_before).fold(None, sooner)
    }

    /// Gives all of them up: which runs they are of, and of which kinds.
    pub(super) fn drain(&mut self) -> Vec<(RunId, Option<usize>)> {
        std::mem::take(&mut self.results).into_iter().map(|(id, pending)| (id, pending.kind)).collect()
    }

    /// Whether it does for these to hear which are accepted. What a fault or a silence leaves open is asked in full, and
    /// so is what a handler says that it has stored by itself: what is sent for it is a failure, never a completion.
    fn may_be_brief(&self, rows: &[Settlement]) -> bool {
        !self.thorough && rows.iter().all(|row| row.outcome == Ending::Completed)
    }

    fn succeeded(&mut self) {
        self.alone = false;
        self.limit = self.limit.saturating_mul(2).min(MAX_BATCH);
    }
}

impl Engine {
    /// A run ended: works out what becomes of its job.
    pub(super) fn finished(&mut self, now: Instant, id: RunId, report: Report) {
        let Some(run) = self.runs.get_mut(id) else {
            self.late_result(id, None);
            return;
        };
        if run.work == Work::Stopped {
            return;
        }
        run.work = Work::Stopped;
        if run.ran == Duration::ZERO {
            run.ran = now.saturating_duration_since(run.started_at);
        }
        self.burst.ended(run.started_at);
        run.spoke_late = run.row == Row::Unsettled;
        let (kind, row, blocking) = (run.kind, run.row, run.blocking);
        if blocking {
            self.extend_giving_up(now);
        }
        if report.verdict == Verdict::Discarded && self.is_running() {
            let kind = self.kind_name(Some(kind));
            self.observe(Event::SpawnerLost { job: id.job_id(), run: id.run_count(), kind });
            self.spawner_discarded(now);
        } else if report.verdict == Verdict::NotStarted && self.is_running() {
            // No thread could be started for it. Claiming it again at once would fail again at once.
            self.claiming.discarded(now);
        } else {
            self.claiming.not_discarded();
        }
        match row {
            Row::Held | Row::Completed => self.conclude(id, report),
            // It timed out, and that is not stored yet: it may still turn out that the handler has completed the job.
            Row::Unsettled => {}
            Row::Done => self.give_way(id),
            Row::Gone => {
                let has_result = !matches!(report.verdict, Verdict::Aborted | Verdict::NotStarted | Verdict::Discarded);
                if has_result {
                    self.late_result(id, Some(kind));
                }
                self.give_way(id);
            }
        }
    }

    /// A handler has ended whose row was not its own any more: its job may be claimed here again.
    fn give_way(&mut self, id: RunId) {
        self.claiming.wake();
        self.free(id);
    }

    fn conclude(&mut self, id: RunId, report: Report) {
        let Some(run) = self.runs.get(id).cloned() else { return };
        if let Some(what) = &report.degraded {
            self.observe(Event::Degraded { job: id.job_id(), run: id.run_count(), what: what.clone() });
        }
        let tally = self.tally(&run, &report.verdict);
        let settlement = self.decide(id, &run, report);
        self.unsettle(settlement, tally);
    }

    /// The result waits from here on until the server has taken it.
    pub(super) fn unsettle(&mut self, settlement: Settlement, tally: Tally) {
        let Some(run) = self.runs.get_mut(settlement.id) else { return };
        run.row = Row::Unsettled;
        self.settling.add(settlement, Some(run.kind), tally);
    }

    /// For rows that are claimed by this worker without having become a run.
    fn settle_without_run(&mut self, settlement: Settlement, kind: Option<usize>, tally: Tally) {
        if !self.settling.holds(settlement.id) {
            self.settling.add(settlement, kind, tally);
        }
    }

    /// Gives back a claimed row that cannot become a run here.
    pub(super) fn release_unknown(&mut self, id: RunId, kind: Option<usize>, why: &'static str) {
        let release = Settlement { note: Some(why.to_owned()), ..bare(id, Ending::Released) };
        self.settle_without_run(release, kind, Tally::Released(why));
    }

    /// A claimed row that could not be read: it must not stay claimed, and its neighbours do not suffer.
    pub(super) fn settle_unreadable(&mut self, row: Malformed) {
        let message = format!("cannot decode the row: {}", row.why);
        let kind = self.kind_index(&row.kind);
        let settlement = self.undecodable(row.id, kind, row.failure_count, message);
        self.settle_without_run(settlement, kind, Tally::Settled);
    }

    fn tally(&self, run: &Run, verdict: &Verdict) -> Tally {
        match verdict {
            Verdict::Aborted if run.abort == Some(Abort::TimedOut) => Tally::TimedOut,
            Verdict::Aborted => Tally::Released("shutdown_timeout"),
            Verdict::NotStarted if self.is_forced() => Tally::Released("shutdown_timeout"),
            Verdict::NotStarted => Tally::Released("not_started"),
            Verdict::Discarded => Tally::Released("discarded"),
            Verdict::CompletedItself => Tally::Confirmed,
            _ => Tally::Settled,
        }
    }

    fn decide(&self, id: RunId, run: &Run, report: Report) -> Settlement {
        let Report { verdict, carry, attachment, degraded } = report;
        let note = |text: Option<String>| join_notes(text, degraded.clone());
        match verdict {
            Verdict::Completed { note: text } => {
                Settlement { attachment, note: note(text), ..bare(id, Ending::Completed) }
            }
            Verdict::CompletedItself => Settlement {
                attachment,
                ..self.failed(id, Some(run.kind), run.failure_count, note(Some(NOT_COMMITTED.into())))
            },
            Verdict::Paused { resume_in, note: text } => {
                let delay = resume_in.min(MAX_DELAY).as_secs_f64();
                Settlement { delay, attachment, carry, note: note(text), ..bare(id, Ending::Paused) }
            }
            Verdict::Failed { message, permanent: true } => {
                Settlement { attachment, note: note(Some(message)), ..bare(id, Ending::Dead) }
            }
            Verdict::Failed { message, permanent: false } => {
                let failed = self.failed(id, Some(run.kind), run.failure_count, note(Some(message)));
                Settlement { attachment, carry, ..failed }
            }
            Verdict::Panicked(message) => match self.rules.config.panic_policy {
                PanicPolicy::Retry => self.failed(id, Some(run.kind), run.failure_count, note(Some(message))),
                PanicPolicy::Dead => Settlement { note: note(Some(message)), ..bare(id, Ending::Dead) },
            },
            Verdict::Undecodable(message) => self.undecodable(id, Some(run.kind), run.failure_count, message),
            Verdict::Aborted if run.abort == Some(Abort::TimedOut) => self.timed_out(id, run),
            Verdict::Aborted | Verdict::NotStarted | Verdict::Discarded => bare(id, Ending::Released),
        }
    }

    /// A failure that is retried with the kind's backoff, or the last one that the backstop allows.
    fn failed(&self, id: RunId, kind: Option<usize>, failures_before: i32, note: Option<String>) -> Settlement {
        // Written by hand it may be negative.
        let failures = failures_before.max(0).unsigned_abs().saturating_add(1);
        if is_beyond(self.rules.config.backstop, failures) {
            return Settlement { note, ..bare(id, Ending::Dead) };
        }
        let delay = self.backoff_of(kind).delay(failures, self.rules.config.jitter, id.job);
        Settlement { delay: delay.as_secs_f64(), note, ..bare(id, Ending::Retried) }
    }

    /// A worker that cannot read a job waits as long as it may: most likely one that can is being deployed.
    fn undecodable(&self, id: RunId, kind: Option<usize>, failures_before: i32, message: String) -> Settlement {
        let note = join_notes(Some(message), None);
        match self.rules.config.decode_policy {
            DecodePolicy::Retry => {
                let failed = self.failed(id, kind, failures_before, note);
                let longest = self.backoff_of(kind).cap().as_secs_f64();
                let delay = if failed.outcome == Ending::Retried { longest } else { 0.0 };
                Settlement { delay, ..failed }
            }
            DecodePolicy::Dead => Settlement { note, ..bare(id, Ending::Dead) },
        }
    }

    /// As a failure, but never at once: what made the run hang is most likely still there.
    pub(super) fn timed_out(&self, id: RunId, run: &Run) -> Settlement {
        let after = self.rule(run.kind).and_then(|rule| rule.timeout).unwrap_or_default();
        let note = Some(format!("timed out after {after:?}"));
        let failed = self.failed(id, Some(run.kind), run.failure_count, note);
        let base = self.backoff_of(Some(run.kind)).base().as_secs_f64();
        let delay = if failed.outcome == Ending::Retried { failed.delay.max(base) } else { 0.0 };
        Settlement { delay, ..failed }
    }

    pub(super) fn backoff_of(&self, kind: Option<usize>) -> crate::Backoff {
        kind.and_then(|kind| self.rule(kind)).map_or(self.rules.config.backoff, |rule| rule.backoff)
    }

    pub(super) fn settle_statement(&self, rows: Vec<Settlement>) -> Option<Settle> {
        (!rows.is_empty()).then(|| Settle {
            worker: self.rules.worker.clone(),
            brief: self.settling.may_be_brief(&rows),
            rows,
            discard: self.rules.config.discard_completed,
        })
    }

    /// Takes in the server's answers to a batch of results.
    pub(super) fn settled(&mut self, now: Instant, sent: &[RunId], answers: Vec<(RunId, Settled)>) {
        self.settling.succeeded();
        self.settling.thorough = answers.len() < sent.len();
        for (id, answer) in answers {
            match answer {
                Settled::Accepted | Settled::Landed => self.accepted(now, id),
                Settled::Refused => self.refused(id),
                Settled::Busy => self.put_off(now, id),
                Settled::Completed => self.completed_itself(id),
                Settled::Cancelled => self.cancelled(now, id),
            }
        }
    }

    fn accepted(&mut self, now: Instant, id: RunId) {
        let Some(pending) = self.settling.results.remove(&id) else { return };
        let Pending { settlement, kind, tally, .. } = *pending;
        match tally {
            Tally::Settled | Tally::Confirmed => self.report.settled += 1,
            Tally::TimedOut => self.report.timed_out += 1,
            Tally::Released(_) => self.report.released += 1,
        }
        if matches!(tally, Tally::Confirmed) {
            self.observe(Event::Degraded { job: id.job_id(), run: id.run_count(), what: NOT_COMMITTED.to_owned() });
        }
        self.tell_settled(kind, tally, &settlement);
        self.announce_settlement(now, kind, &settlement);
        self.row_is(id, Row::Gone);
    }

    /// Somebody had asked for the job to end: whatever its run left, that is what became of it.
    fn cancelled(&mut self, now: Instant, id: RunId) {
        if let Some(pending) = self.settling.results.get_mut(&id) {
            pending.settlement.outcome = Ending::Cancelled;
            if matches!(pending.tally, Tally::Released(_)) {
                pending.tally = Tally::Settled;
            }
        }
        self.accepted(now, id);
    }

    /// The handler has completed the job before it ended; how it ended changes nothing about that.
    fn completed_itself(&mut self, id: RunId) {
        let Some(pending) = self.settling.results.remove(&id) else { return };
        let Pending { settlement, kind, tally, .. } = *pending;
        self.report.settled += 1;
        let kind = self.kind_name(kind);
        let (job, run, ran) = (id.job_id(), id.run_count(), self.time_of(id));
        if !matches!(tally, Tally::Confirmed) {
            self.report.overruled += 1;
            self.observe(Event::Overruled { job, run, kind, outcome: settlement.outcome.into() });
        }
        self.observe(Event::Settled { job, run, kind, outcome: JournalEvent::Completed, ran });
        self.row_is(id, Row::Done);
    }

    fn row_is(&mut self, id: RunId, row: Row) {
        let Some(run) = self.runs.get_mut(id) else { return };
        run.row = row;
        if run.spoke_late && row == Row::Gone {
            let kind = run.kind;
            self.late_result(id, Some(kind));
        }
        self.free(id);
    }

    fn tell_settled(&mut self, kind: Option<usize>, tally: Tally, settlement: &Settlement) {
        // A row whose kind is not known was told of when it was found.
        let Some(kind) = kind.and_then(|kind| self.rule(kind)).map(|rule| rule.kind) else { return };
        let (job, run, ran) = (settlement.id.job_id(), settlement.id.run_count(), self.time_of(settlement.id));
        self.observe(match tally {
            Tally::Released(reason) => Event::Released { job, run, kind, reason },
            _ => Event::Settled { job, run, kind, outcome: settlement.outcome.into(), ran },
        });
    }

    /// How long the run took; nothing for a row that never became one.
    fn time_of(&self, id: RunId) -> Duration {
        self.runs.get(id).map_or(Duration::ZERO, |run| run.ran)
    }

    /// The row is no longer this run's: its result is discarded.
    fn refused(&mut self, id: RunId) {
        if self.settling.results.remove(&id).is_none() {
            return;
        }
        let kind = self.runs.get(id).map(|run| run.kind);
        self.late_result(id, kind);
        self.row_is(id, Row::Gone);
    }

    fn put_off(&mut self, now: Instant, id: RunId) {
        if let Some(pending) = self.settling.results.get_mut(&id) {
            pending.not_before = Some(later(now, BUSY_RETRY * (1 << pending.busy)));
            pending.busy = (pending.busy + 1).min(BUSY_DOUBLINGS);
        }
    }

    fn late_result(&mut self, id: RunId, kind: Option<usize>) {
        let kind = self.kind_name(kind);
        self.report.late += 1;
        self.observe(Event::LateResult { job: id.job_id(), run: id.run_count(), kind });
    }

    /// Gives the run's slot back if nothing holds it, and looks for work for it.
    pub(super) fn free(&mut self, id: RunId) {
        let superseded = self.runs.get(id).is_some_and(|run| run.superseded);
        if let Some(kind) = self.runs.release_if_done(id) {
            if superseded || self.rule(kind).is_some_and(|rule| rule.cap.is_some()) {
                self.claiming.wake();
            }
        }
    }

    /// An exchange failed with its results; none of them is lost.
    pub(super) fn exchange_failed(&mut self, now: Instant, sent: &[RunId], with_claim: bool, fault: &Fault) {
        if with_claim {
            self.claiming.wake();
        }
        if sent.is_empty() {
            return;
        }
        self.settling.thorough = true;
        if with_claim || !matches!(fault.kind, FaultKind::Statement) {
            self.settling.alone = true;
        } else if let [id] = sent {
            self.refused_content(now, *id, fault);
        } else {
            // One of them is refused for what it holds: halve until it stands alone.
            self.settling.limit = (sent.len() / 2).max(1);
        }
    }

    /// A single result is refused for what it holds: send it without, and if that does not help, later.
    fn refused_content(&mut self, now: Instant, id: RunId, fault: &Fault) {
        let seed = self.rules.seed;
        let Some(pending) = self.settling.results.get_mut(&id) else { return };
        if pending.degraded {
            let retry = pending.retry.get_or_insert_with(|| Retry::new(seed));
            pending.not_before = Some(later(now, retry.next_delay()));
            return;
        }
        pending.degraded = true;
        let what = format!("the server refused to store what this run left: {}", fault.message);
        pending.settlement.note = Some(text::note(&what));
        pending.settlement.attachment = None;
        pending.settlement.carry = None;
        self.observe(Event::Degraded { job: id.job_id(), run: id.run_count(), what });
    }
}

fn bare(id: RunId, outcome: Ending) -> Settlement {
    Settlement { id, outcome, delay: 0.0, note: None, attachment: None, carry: None }
}

/// A note as it is stored: what the handler said, and what could not be stored as it wanted.
fn join_notes(text: Option<String>, degraded: Option<String>) -> Option<String> {
    let joined = match (text, degraded) {
        (Some(text), Some(degraded)) => format!("{degraded}; {text}"),
        (text, degraded) => text.or(degraded)?,
    };
    Some(text::note(&joined))
}
