//! When to look for jobs, how deep, and what an answer says about looking again.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use super::hold::Hold;
use super::marks::Marks;
use super::purpose::Wanted;
use super::runs::Work;
use super::{Engine, Output, Rules, Start};
use crate::job::ClaimedJob;
use crate::observer::Event;
use crate::recovery::{self, PASS, UNBOUNDED};
use crate::registry::KindRule;
use crate::rotation::{Rotation, Turn};
use crate::statement::{Claim, ClaimReply, Recovery, Settlement, StaleRow, SurveyReply};
use crate::time::{later, seconds, sooner};

/// How much deeper than it wants a claim looks at first, for rows that others are taking at the same moment.
/// Measured: with 2 workers × 16 slots 4 leaves a sixth of the claims short, and the doubling below mends those.
const SPARE: i32 = 4;

/// The deepest spare; 4 doubled twelve times would be 16,384, and a claim that looks so deep costs milliseconds.
const MAX_SPARE: i32 = 4_096;

/// How often one look asks again before it waits: by then 4 has been doubled to the deepest spare.
const MAX_ASKS: u32 = 12;

/// How soon to look again for rows that were seen but locked: a locker that rolls back sends no notification.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The shortest time between two passes of recovery.
const STALE_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two claims that also look for claims that ran out: each such look steps over the index
/// entries of all that would have run out meanwhile, had they not ended, for as long as an old snapshot keeps those
/// (measured: 1.3 ms for 15,000 of them, beside a claim of 0.2 ms).
const GLANCE_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two promotions while the worker has enough to do: at most two a second then, and as many
/// notifications about what it promoted and has no slots for.
const BUSY_PROMOTION_INTERVAL: Duration = Duration::from_millis(500);

/// A pass looks at least this far back, so that rows written by clocks and transactions a little behind are seen.
const LOOK_BACK_MARGIN: Duration = Duration::from_secs(10);

/// How often a pass looks back without bound. Between these, the bound steps over index entries of rows that are long
/// gone but that an old snapshot keeps in the index (measured: 32 ms without it, 0.8 ms with it).
const UNBOUNDED_EVERY: Duration = Duration::from_secs(30);

/// From which ask of a look on capped kinds are asked for one at a time.
const NARROW_FROM: u32 = 2;

/// A lease has run out only when the server's clock is past it; asking at that very instant finds nothing.
const EXPIRY_MARGIN: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Claiming {
    rotation: Rotation,
    /// There may be something to claim.
    hungry: bool,
    previous_full: bool,
    marks: Marks,
    spare: i32,
    asks: u32,
    /// Nothing is known about what comes next; ask before sleeping.
    survey: bool,
    look_again_at: Option<Instant>,
    paused_until: Option<Instant>,
    next_poll: Instant,
    next_due: Option<Instant>,
    /// Of what was told since the question was sent that is being answered: its answer cannot know of it.
    told_due: Option<Instant>,
    next_expiry: Option<Instant>,
    promote: bool,
    promotion: Pass,
    stale: bool,
    stale_pass: Pass,
    /// No recovery meanwhile: our own reconnect must not turn other workers' outage into failures.
    pub(super) recovery_hold: Hold,
    recoveries: Vec<Recovery>,
    discarded_in_a_row: u32,
}

/// A housekeeping pass that usually looks back only to the previous one.
#[derive(Debug, Default)]
struct Pass {
    last: Option<Instant>,
    last_unbounded: Option<Instant>,
    unbounded_next: bool,
    /// When a claim last looked whether a pass would find anything.
    glanced: Option<Instant>,
    /// When it last said that there is nothing, which is as good as a pass.
    clean: Option<Instant>,
}

impl Pass {
    /// How far the pass that starts now looks back, in seconds.
    fn look_back(&mut self, now: Instant) -> f64 {
        let bounded = self.peek_look_back(now);
        if bounded >= UNBOUNDED {
            self.last_unbounded = Some(now);
        }
        self.unbounded_next = false;
        self.last = Some(now);
        bounded
    }

    fn peek_look_back(&self, now: Instant) -> f64 {
        if self.unbounded_next { UNBOUNDED } else { self.since_last(now) }
    }

    fn since_last(&self, now: Instant) -> f64 {
        match (self.last.max(self.clean), self.last_unbounded) {
            (Some(last), Some(unbounded)) if now.saturating_duration_since(unbounded) < UNBOUNDED_EVERY => {
                (now.saturating_duration_since(last) + LOOK_BACK_MARGIN).as_secs_f64()
            }
            _ => UNBOUNDED,
        }
    }

    /// How far a claim looks back; nothing, if one has looked lately.
    fn glance(&self, now: Instant) -> f64 {
        match self.glanced {
            Some(at) if now.saturating_duration_since(at) < GLANCE_EVERY => 0.0,
            _ => self.since_last(now),
        }
    }

    /// A claim that was sent at `at` has looked so far back, and found something or not.
    fn glanced(&mut self, at: Instant, look_back: f64, found: bool) {
        if look_back <= 0.0 {
            return;
        }
        self.glanced = Some(at);
        if found {
            return;
        }
        self.clean = Some(at);
        if look_back >= UNBOUNDED {
            self.last_unbounded = Some(at);
        }
    }

    /// When the next pass may start, if passes keep `interval` between them.
    fn earliest(&self, interval: Duration) -> Option<Instant> {
        self.last.map(|last| later(last, interval))
    }

    fn may_start(&self, now: Instant, interval: Duration) -> bool {
        self.earliest(interval).is_none_or(|at| at <= now)
    }
}

impl Claiming {
    pub(super) fn new(rules: &Rules, now: Instant) -> Self {
        Self {
            rotation: Rotation::new(rules.config.priority_ratio, rules.seed),
            hungry: true,
            previous_full: false,
            marks: Marks::new(rules.kinds.len()),
            spare: SPARE,
            asks: 0,
            survey: true,
            look_again_at: None,
            paused_until: None,
            next_poll: later(now, rules.config.poll_max),
            next_due: None,
            told_due: None,
            next_expiry: None,
            promote: true,
            promotion: Pass::default(),
            stale: false,
            stale_pass: Pass::default(),
            recovery_hold: Hold::default(),
            recoveries: Vec::new(),
            discarded_in_a_row: 0,
        }
    }

    /// Something claimable may have come.
    pub(super) fn wake(&mut self) {
        self.hungry = true;
        self.asks = 0;
    }

    /// Nothing that was known before is sure any more: look at everything.
    pub(super) fn doubt(&mut self) {
        self.wake();
        self.marks.look_fully();
        self.survey = true;
        self.promote = true;
        self.promotion.unbounded_next = true;
        self.stale_pass.unbounded_next = true;
    }

    /// A job of a registered kind will be due at `at`.
    pub(super) fn due_at(&mut self, at: Instant) {
        self.next_due = sooner(self.next_due, Some(at));
        self.told_due = sooner(self.told_due, Some(at));
        self.promotion.unbounded_next = true;
    }

    /// The server has said when the next job is due.
    fn know_due(&mut self, now: Instant, answer: Option<f64>) {
        self.next_due = sooner(self.told_due, answer.map(|due| later(now, seconds(due))));
    }

    pub(super) fn take_recoveries(&mut self) -> Vec<Recovery> {
        std::mem::take(&mut self.recoveries)
    }

    /// The recoveries could not be written; find them anew.
    pub(super) fn recover_again(&mut self) {
        self.stale = true;
    }

    /// Whether all is known, and nothing of it to be done now.
    #[cfg(feature = "testing")]
    pub(super) fn is_quiet(&self) -> bool {
        let wanted = self.hungry || self.survey || self.promote || self.stale || !self.recoveries.is_empty();
        !wanted && self.look_again_at.is_none() && self.paused_until.is_none()
    }

    pub(super) fn survey_again(&mut self) {
        self.survey = true;
    }

    pub(super) fn promote_again(&mut self) {
        self.promote = true;
    }

    /// How long to leave the queue alone after the spawner threw a run away; grows while it goes on.
    pub(super) fn discarded(&mut self, now: Instant) -> u32 {
        if self.paused_until.is_some_and(|until| until > now) {
            // Of the same claim as the one before: one bad moment counts once, however many runs it cost.
            return self.discarded_in_a_row;
        }
        self.discarded_in_a_row = self.discarded_in_a_row.saturating_add(1);
        let wait = Duration::from_millis(100).saturating_mul(1 << self.discarded_in_a_row.min(6));
        self.paused_until = Some(later(now, wait.min(Duration::from_secs(5))));
        self.discarded_in_a_row
    }

    pub(super) fn not_discarded(&mut self) {
        self.discarded_in_a_row = 0;
    }

    fn pass_time(&mut self, now: Instant, poll_max: Duration) {
        let past = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if past(&mut self.look_again_at) {
            self.wake();
        }
        past(&mut self.paused_until);
        self.recovery_hold.pass_time(now);
        past(&mut self.told_due);
        if past(&mut self.next_due) {
            self.promote = true;
        }
        if past(&mut self.next_expiry) {
            self.survey = true;
        }
        if self.next_poll <= now {
            self.survey = true;
            self.next_poll = later(now, poll_max);
        }
    }
}

/// A kind that may be claimed now.
struct OpenKind<'a> {
    index: usize,
    rule: &'a KindRule,
    /// How many more of it may run.
    room: usize,
}

impl OpenKind<'_> {
    /// How deep to look for it. Uncapped kinds are bounded by what the claim wants.
    fn depth(&self, narrowed: bool) -> i32 {
        if self.rule.cap.is_some() && !narrowed { i32::try_from(self.room).unwrap_or(i32::MAX) } else { i32::MAX }
    }
}

impl Engine {
    pub(super) fn pass_claiming_time(&mut self, now: Instant) {
        self.claiming.pass_time(now, self.rules.config.poll_max);
    }

    /// When claiming wants to be looked at again; nothing while there is no free slot to look for.
    pub(super) fn claiming_deadline(&self) -> Option<Instant> {
        if !self.is_running() || self.free_slots(0) == 0 {
            return None;
        }
        let c = &self.claiming;
        let promotion = c.promote.then(|| c.promotion.earliest(self.promotion_interval())).flatten();
        let recovery = (c.stale && self.recovery_allowed_by_renewals())
            .then(|| c.recovery_hold.until().max(c.stale_pass.earliest(STALE_INTERVAL)))
            .flatten();
        [Some(c.next_poll), c.look_again_at, c.paused_until, c.next_due, c.next_expiry, promotion, recovery]
            .into_iter()
            .fold(None, sooner)
    }

    /// Slots without a run, were `settling` finished runs out of the way.
    pub(super) fn free_slots(&self, settling: usize) -> usize {
        self.rules.config.concurrency.saturating_sub(self.runs.len().saturating_sub(settling))
    }

    fn promotion_interval(&self) -> Duration {
        if self.claiming.hungry || self.free_slots(0) == 0 { BUSY_PROMOTION_INTERVAL } else { Duration::ZERO }
    }

    /// The look-back for promoting now, if it is time to promote.
    pub(super) fn promotion_due(&mut self, now: Instant) -> Option<f64> {
        let interval = self.promotion_interval();
        let c = &mut self.claiming;
        if !c.promote || !c.promotion.may_start(now, interval) {
            return None;
        }
        c.promote = false;
        c.told_due = None;
        Some(c.promotion.look_back(now))
    }

    /// The look-back for finding stale claims now, if it is time to.
    pub(super) fn stale_due(&mut self, now: Instant) -> Option<f64> {
        if !self.recovery_allowed_by_renewals() {
            return None;
        }
        let c = &mut self.claiming;
        if !c.stale || c.recovery_hold.until().is_some() || !c.stale_pass.may_start(now, STALE_INTERVAL) {
            return None;
        }
        c.stale = false;
        Some(c.stale_pass.look_back(now))
    }

    /// The look-back for a survey, if one is wanted and there is nothing left to claim first.
    pub(super) fn survey_due(&mut self, now: Instant) -> Option<f64> {
        if !self.claiming.survey || self.claiming.hungry || self.free_slots(0) == 0 {
            return None;
        }
        self.claiming.survey = false;
        self.claiming.told_due = None;
        self.claiming.next_poll = later(now, self.rules.config.poll_max);
        Some(self.claiming.stale_pass.peek_look_back(now))
    }

    /// The claim to send now, if any; `settling` are the finished runs that the same exchange settles.
    pub(super) fn claim_due(&mut self, now: Instant, settling: &[Settlement]) -> Option<(Claim, Wanted)> {
        if !self.claiming.hungry || self.claiming.paused_until.is_some() {
            return None;
        }
        let leaving: Vec<usize> = settling.iter().filter_map(|it| self.leaving_kind(it)).collect();
        let free = self.free_slots(leaving.len());
        #[cfg(feature = "testing")]
        let free = free.min(self.stint_left());
        let (open, narrowed) = self.narrow(self.open_kinds(&leaving, free));
        let want = open.iter().map(|kind| kind.room).fold(0, usize::saturating_add).min(free);
        if want == 0 {
            return None;
        }
        let kinds = open.iter().map(|kind| kind.rule.kind).collect();
        let leases = open.iter().map(|kind| kind.rule.lease.as_secs_f64()).collect();
        let room = open.iter().map(|kind| kind.depth(narrowed)).collect();
        let bounds = self.claiming.marks.bounds(now, open.iter().map(|kind| kind.index));
        let bounded = bounds.is_some();
        let slots = u32::try_from(want).unwrap_or(u32::MAX);
        let Turn { floor, slots } = self.claiming.rotation.turn(slots, self.claiming.previous_full);
        let want = want.min(usize::try_from(slots).unwrap_or(usize::MAX));
        self.claiming.hungry = false;
        let skip = self.left_alone();
        let look_back = self.claiming.stale_pass.glance(now);
        let claim = Claim {
            worker: self.rules.worker.clone(),
            kinds,
            leases,
            room,
            floor: floor.code(),
            want: i32::try_from(want).unwrap_or(i32::MAX),
            spare: self.claiming.spare,
            look_back,
            skip,
            durable: self.rules.config.durable_claims,
            bounds,
        };
        Some((claim, Wanted { want, floor, narrowed, bounded, look_back, sent: now }))
    }

    /// The kind of the run that this settlement ends, if its handler has stopped.
    fn leaving_kind(&self, settlement: &Settlement) -> Option<usize> {
        self.runs.get(settlement.id).filter(|run| run.work == Work::Stopped).map(|run| run.kind)
    }

    /// The kinds below their caps, and how many more of each may run.
    fn open_kinds(&self, leaving: &[usize], free: usize) -> Vec<OpenKind<'_>> {
        let room = |(index, rule): (usize, &KindRule)| {
            let left = leaving.iter().filter(|kind| **kind == index).count();
            let running = self.runs.of_kind(index).saturating_sub(left);
            rule.cap.map_or(free, |cap| cap.saturating_sub(running).min(free))
        };
        let kinds = self.rules.kinds.iter().enumerate();
        kinds
            .map(|(index, rule)| OpenKind { index, rule, room: room((index, rule)) })
            .filter(|kind| kind.room > 0)
            .collect()
    }

    /// Jobs that are neither claimed nor seen by a survey.
    pub(super) fn left_alone(&self) -> Vec<i64> {
        let skip = self.runs.zombies();
        #[cfg(feature = "testing")]
        let skip = [skip.as_slice(), self.stint_skips()].concat();
        skip
    }

    /// The kinds of which more may run now.
    pub(super) fn open_now(&self) -> Vec<&'static str> {
        self.open_kinds(&[], self.free_slots(0)).into_iter().map(|kind| kind.rule.kind).collect()
    }

    /// A capped kind is looked into only as deep as its room, so rows that others hold can hide all it could take:
    /// from the third ask of a look on, the uncapped kinds and each capped one are asked for in turn, as deep as any.
    fn narrow<'a>(&self, open: Vec<OpenKind<'a>>) -> (Vec<OpenKind<'a>>, bool) {
        let capped = open.iter().filter(|kind| kind.rule.cap.is_some()).count();
        if self.claiming.asks < NARROW_FROM || capped == 0 {
            return (open, false);
        }
        let (alone, together): (Vec<_>, Vec<_>) = open.into_iter().partition(|kind| kind.rule.cap.is_some());
        let turns = capped + usize::from(!together.is_empty());
        let turn = usize::try_from(self.claiming.asks).unwrap_or(0) % turns;
        (if turn < capped { alone.into_iter().skip(turn).take(1).collect() } else { together }, true)
    }

    /// Takes in what a claim brought.
    pub(super) fn claimed(&mut self, now: Instant, wanted: &Wanted, reply: ClaimReply) {
        let got = reply.jobs.len() + reply.malformed.len();
        self.learn_from_claim(now, wanted, got, &reply);
        self.mark(now, wanted, &reply);
        #[cfg(feature = "testing")]
        self.progress.claimed(got);
        if got > 0 {
            self.observe(Event::Claimed { count: got });
        }
        for row in reply.malformed {
            self.settle_unreadable(row);
        }
        let others = self.runs.len();
        for job in reply.jobs {
            self.admit(now, job);
        }
        self.burst.begins(wanted.sent, now, self.runs.len().saturating_sub(others));
    }

    fn learn_from_claim(&mut self, now: Instant, wanted: &Wanted, got: usize, reply: &ClaimReply) {
        let seen = usize::try_from(reply.looked).unwrap_or(usize::MAX);
        let c = &mut self.claiming;
        c.stale |= reply.stale;
        if got > 0 {
            // An answer without rows says nothing about it.
            c.stale_pass.glanced(wanted.sent, wanted.look_back, reply.stale);
        }
        c.rotation.claimed(u32::try_from(got).unwrap_or(u32::MAX), wanted.floor);
        c.previous_full = got >= wanted.want;
        if got >= wanted.want {
            c.asks = 0;
            c.spare = (c.spare - c.spare / 8).max(SPARE);
            c.hungry = true;
        } else if !wanted.floor.is_none() {
            // What a floor could not fill is claimed without one, at once.
            c.hungry = true;
        } else if wanted.bounded {
            // Whether there is more is known only when everything has been looked at.
            c.marks.look_fully();
            c.hungry = true;
        } else if got > 0 && seen > got {
            c.ask_again(now);
        } else if got > 0 && !wanted.narrowed {
            c.asks = 0;
        } else {
            // Nothing at all, or only some kinds were asked for: whether there is more is not known.
            c.survey = true;
        }
    }

    /// Learns where the next claim may begin, if looking from the beginning takes long.
    fn mark(&mut self, now: Instant, wanted: &Wanted, reply: &ClaimReply) {
        let marks = &mut self.claiming.marks;
        match (wanted.bounded, reply.looked_for.map(seconds)) {
            (true, Some(took)) => marks.looked_from_marks(took),
            // One that left something out, by a floor or by kinds, has not seen what may lie behind the marks there.
            (false, Some(took)) if wanted.floor.is_none() && !wanted.narrowed => marks.looked_fully(now, took),
            (false, _) | (true, None) => {}
        }
        let rules = &self.rules;
        self.claiming.marks.note(reply.jobs.iter().filter_map(|job| Some((rules.kind_index(&job.kind)?, job))));
    }

    fn admit(&mut self, now: Instant, job: ClaimedJob) {
        let id = job.id;
        let Some(kind) = self.kind_index(&job.kind) else {
            self.release_unknown(id, None, "claimed a kind that is not registered");
            return;
        };
        let held = self.runs.hold(id.job);
        if held || !self.is_running() {
            let why = if held { "an earlier run has not stopped" } else { "claimed while shutting down" };
            self.release_unknown(id, Some(kind), why);
            if held {
                // Then the earlier run's claim is most likely lost, or its result has landed without our hearing of it.
                self.runs.supersede(id.job);
                self.reconcile(now);
            }
            return;
        }
        let report_start = self.enroll(now, kind, &job);
        let (kind_name, waited) = (self.kind_name(Some(kind)), job.waited());
        let started = Event::Started { job: id.job_id(), run: id.run_count(), kind: kind_name, waited };
        self.outbox.push_back(Output::Start(Box::new(Start { id, kind, job, report_start })));
        self.observe(started);
    }

    /// Takes in what a survey saw.
    pub(super) fn surveyed(&mut self, now: Instant, reply: &SurveyReply) {
        let shortest = self.rules.kinds.iter().map(|rule| rule.lease).min();
        let capped = self.rules.kinds.iter().filter(|rule| rule.cap.is_some()).count();
        let c = &mut self.claiming;
        c.know_due(now, reply.next_due);
        // A claim made after this survey cannot run out before the shortest lease has passed.
        let known = reply.next_expiry.map(seconds);
        c.next_expiry = known.into_iter().chain(shortest).min().map(|expiry| later(now, expiry + EXPIRY_MARGIN));
        c.stale |= reply.stale;
        c.promote |= reply.due;
        c.promotion.unbounded_next |= reply.due;
        if reply.ready {
            // A claim found nothing although something is there: others hold it at this moment.
            let most = if c.spare < MAX_SPARE { MAX_ASKS } else { asks_of_each(capped) };
            c.ask_again_at_most(now, most);
        } else {
            c.asks = 0;
        }
    }

    pub(super) fn promoted(&mut self, now: Instant, promoted: u64, more_due: bool, next_due: Option<f64>) {
        let c = &mut self.claiming;
        c.know_due(now, next_due);
        if more_due {
            c.promotion.unbounded_next = true;
            if promoted > 0 {
                c.promote = true;
            } else {
                c.next_due = sooner(c.next_due, Some(later(now, LOOK_AGAIN)));
            }
        }
        if promoted > 0 {
            c.wake();
            self.announce_own(promoted);
        }
    }

    /// Decides what becomes of claims whose leases ran out.
    pub(super) fn found_stale(&mut self, rows: Vec<StaleRow>) {
        let full = rows.len() >= usize::try_from(PASS).unwrap_or(usize::MAX);
        let recoveries: Vec<Recovery> = rows.into_iter().map(|row| self.recovery(row)).collect();
        self.claiming.recoveries = recoveries;
        self.claiming.stale |= full;
        self.claiming.survey |= !self.claiming.recoveries.is_empty();
    }

    fn recovery(&self, row: StaleRow) -> Recovery {
        let backoff = self.backoff_of(self.kind_index(&row.kind));
        recovery::decide(row, backoff, self.rules.config.jitter, self.rules.config.backstop)
    }
}

/// How often one look asks that is as deep as any from the first: until each capped kind and the others had their turn.
/// Asking more often cannot show more, and whoever holds a row for minutes would cost two dozen statements a second.
fn asks_of_each(capped: usize) -> u32 {
    u32::try_from(capped).map_or(MAX_ASKS, |capped| (NARROW_FROM + capped).min(MAX_ASKS))
}

impl Claiming {
    /// Others took what was seen: look again deeper, and after many tries later.
    fn ask_again(&mut self, now: Instant) {
        self.ask_again_at_most(now, MAX_ASKS);
    }

    fn ask_again_at_most(&mut self, now: Instant, most: u32) {
        self.asks += 1;
        if self.asks <= most {
            self.spare = self.spare.saturating_mul(2).min(MAX_SPARE);
            self.hungry = true;
        } else {
            self.asks = 0;
            self.look_again_at = Some(later(now, LOOK_AGAIN));
        }
    }
}
