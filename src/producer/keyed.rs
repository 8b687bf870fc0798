//! Jobs with dedup keys: which of them go into the next statement, and what becomes of each.
//!
//! One caller of a key at a time: while it decides about a pending job, others with the key wait, or each would undo the
//! other's decision. Not for long: a decision that comes late is only made again.
#![deny(clippy::disallowed_methods)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Retry;
use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::observer::Event;
use crate::statement::{Candidate, EnqueueKeyed, KeyedAnswer, KeyedJob, Statement};
use crate::time::{later, sooner};
use crate::{Effect, Enqueued, JobId};

use super::bulk::MAX_BYTES;
use super::call::{CallId, Response, unreached};
use super::inserting::{Aftermath, gone_wrong};
use super::{Producer, Purpose};

/// The most jobs of one statement: each takes a lock of the server's table of locks, which has some 6,400 by default and
/// is shared by all.
pub(crate) const MAX_KEYED: usize = 100;

/// How long others with the key wait for a caller that decides.
const TURN: Duration = Duration::from_millis(50);

/// The first and the longest wait for another transaction that has a key.
const BUSY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// One round of a task with a dedup key.
#[derive(Debug)]
pub(crate) struct KeyedCall {
    pub(crate) keyed: Arc<KeyedJob>,
    /// When it is given up; `None`: this is the first round.
    pub(crate) until: Option<Instant>,
}

/// How a round ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Stored(Enqueued),
    /// There is another candidate than was expected, or none any more.
    Changed {
        candidate: Option<Candidate>,
        /// When the task is given up; `None`: whoever asks waits as long as it likes.
        until: Option<Instant>,
    },
}

/// Of which jobs one may stand for another.
type Key = (Cow<'static, str>, Option<String>);

#[derive(Debug)]
pub(super) struct Queued {
    id: CallId,
    keyed: Arc<KeyedJob>,
    until: Instant,
    /// Another transaction had the key.
    busy: Option<Busy>,
    /// It has met a pending job before.
    has_met: bool,
    /// It has waited although the server was there: for others with its key, as a rule.
    held_up: bool,
}

#[derive(Debug)]
struct Busy {
    retry: Retry,
    /// Gone when the time is over.
    look_at: Option<Instant>,
}

impl Busy {
    fn new(seed: u64) -> Self {
        Self { retry: Retry::between(seed, BUSY.0, BUSY.1), look_at: None }
    }
}

impl Queued {
    fn weight(&self) -> usize {
        self.keyed.weight()
    }

    fn has_decided(&self) -> bool {
        self.keyed.stance.is_some()
    }

    /// Waits before it is tried again.
    fn rests(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.look_at.is_some())
    }

    fn key(&self) -> Key {
        (self.keyed.job.kind.clone(), self.keyed.job.dedup_key.clone())
    }
}

#[derive(Debug)]
pub(super) struct Keyed {
    /// So that several processes that want one key don't come back together.
    seed: u64,
    waiting: VecDeque<Queued>,
    /// Keys whose candidate a caller is deciding about, and until when others wait for it.
    turns: BTreeMap<Key, Instant>,
    /// How much they hold, roughly.
    bytes: usize,
    /// As for inserts: after a refused statement its jobs go one by one.
    alone: usize,
}

impl Keyed {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, waiting: VecDeque::new(), turns: BTreeMap::new(), bytes: 0, alone: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, id: CallId, call: KeyedCall, deadline: Instant) {
        let (has_met, until) = (call.until.is_some(), call.until.unwrap_or(deadline));
        let it = Queued { id, keyed: call.keyed, until, busy: None, has_met, held_up: false };
        self.bytes += it.weight();
        self.waiting.push_back(it);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let busy = |it: &Queued| it.busy.as_ref().and_then(|busy| busy.look_at);
        let calls = self.waiting.iter().filter_map(|it| sooner(Some(it.until), busy(it))).min();
        let turns = if self.waiting.is_empty() { None } else { self.turns.values().min().copied() };
        sooner(calls, turns)
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        self.turns.retain(|_, until| *until > now);
        for busy in self.waiting.iter_mut().filter_map(|it| it.busy.as_mut()) {
            busy.look_at = busy.look_at.filter(|at| *at > now);
        }
    }

    /// Those that have waited as long as they may.
    pub(super) fn take_late(&mut self, now: Instant, trouble: Option<&Fault>) -> Vec<(CallId, Error)> {
        let is_late = |it: &Queued| it.until <= now;
        if !self.waiting.iter().any(is_late) {
            return Vec::new();
        }
        let late: VecDeque<Queued>;
        (late, self.waiting) = mem::take(&mut self.waiting).into_iter().partition(is_late);
        self.bytes -= late.iter().map(Queued::weight).sum::<usize>();
        late.iter().map(|it| (it.id, in_vain(it, trouble))).collect()
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = CallId> + use<> {
        self.bytes = 0;
        mem::take(&mut self.waiting).into_iter().map(|it| it.id)
    }

    /// What goes into the next statement: of a key, one job that has decided, and behind it one that will, so that it
    /// sees what the first has left.
    fn gather(&mut self) -> Vec<Queued> {
        let mut batch = Batch { most: if self.alone > 0 { 1 } else { MAX_KEYED }, ..Batch::default() };
        let (decided, others): (Vec<_>, Vec<_>) =
            mem::take(&mut self.waiting).into_iter().partition(Queued::has_decided);
        let (mut sent, mut asking) = (BTreeSet::new(), BTreeSet::new());
        for it in decided.into_iter().chain(others) {
            let goes = !it.rests() && batch.has_room_for(&it) && {
                let key = it.key();
                if it.has_decided() {
                    sent.insert(key)
                } else {
                    (sent.contains(&key) || !self.turns.contains_key(&key)) && asking.insert(key)
                }
            };
            if goes {
                batch.take(it);
            } else {
                self.leave(it);
            }
        }
        self.bytes -= batch.taken.iter().map(Queued::weight).sum::<usize>();
        self.alone = self.alone.saturating_sub(batch.taken.len());
        batch.taken
    }

    fn leave(&mut self, mut it: Queued) {
        it.held_up = true;
        self.waiting.push_back(it);
    }
}

/// A statement that is being filled.
#[derive(Default)]
struct Batch {
    most: usize,
    bytes: usize,
    taken: Vec<Queued>,
}

impl Batch {
    fn has_room_for(&self, it: &Queued) -> bool {
        self.taken.len() < self.most && (self.taken.is_empty() || self.bytes + it.keyed.job.size() <= MAX_BYTES)
    }

    fn take(&mut self, it: Queued) {
        self.bytes += it.keyed.job.size();
        self.taken.push(it);
    }
}

impl Producer {
    pub(super) fn next_keyed(&mut self) -> Option<(Statement, Purpose)> {
        let taken = self.keyed.gather();
        if taken.is_empty() {
            return None;
        }
        let rows = taken.iter().map(|it| Arc::clone(&it.keyed)).collect();
        Some((Statement::EnqueueKeyed(EnqueueKeyed { rows, wait: false, notify: false }), Purpose::Keyed(taken)))
    }

    pub(super) fn keyed_answered(&mut self, now: Instant, calls: Vec<Queued>, answers: Vec<KeyedAnswer>) {
        let mut busy = Vec::new();
        for (mut it, answer) in calls.into_iter().zip(answers) {
            self.keyed.turns.remove(&it.key());
            match answer {
                KeyedAnswer::Stored { id, effect, due_in, wakes } => {
                    if self.is_observed() {
                        let (job, kind) = (JobId(id), it.keyed.job.kind.clone());
                        self.observe(match effect {
                            Effect::Inserted => Event::Enqueued { job, kind },
                            _ => Event::Merged { job, kind, effect },
                        });
                    }
                    let stored = Response::Keyed(Round::Stored(Enqueued { id: JobId(id), effect }));
                    if wakes && self.rules.notify {
                        self.announce(&it.keyed.job.kind, due_in);
                        self.stored.push((it.id, stored));
                    } else {
                        self.answer(it.id, Ok(stored));
                    }
                }
                KeyedAnswer::Changed(candidate) => {
                    if candidate.is_some() {
                        self.keyed.turns.insert(it.key(), later(now, TURN));
                    }
                    self.answer(it.id, Ok(Response::Keyed(Round::Changed { candidate, until: Some(it.until) })));
                }
                KeyedAnswer::Busy => {
                    it.held_up = true;
                    let seed = self.keyed.seed ^ it.id;
                    let state = it.busy.get_or_insert_with(|| Busy::new(seed));
                    state.look_at = Some(later(now, state.retry.next_delay()));
                    busy.push(it);
                }
            }
        }
        self.keyed_again(busy);
    }

    pub(super) fn keyed_failed(&mut self, now: Instant, calls: Vec<Queued>, fault: &Fault) {
        match self.aftermath(now, calls.len(), fault) {
            Aftermath::Again => self.keyed_again(calls),
            Aftermath::Alone => {
                self.keyed.alone = calls.len();
                self.keyed_again(calls);
            }
            Aftermath::Over => {
                for it in calls {
                    self.keyed.turns.remove(&it.key());
                    self.answer(it.id, Err(gone_wrong(fault)));
                }
            }
        }
    }

    fn keyed_again(&mut self, calls: Vec<Queued>) {
        for it in calls.into_iter().rev() {
            self.keyed.bytes += it.weight();
            self.keyed.waiting.push_front(it);
        }
    }
}

/// What to tell a caller that decided for longer than the call may take.
pub(super) fn too_late(call: &KeyedCall) -> Error {
    let job = &call.keyed.job;
    let what = format!(
        "the job was not enqueued: the call's time was over before `merge` had decided about a pending {} with the key {:?} \
         that nobody changed meanwhile; a `merge` that is slow, or that enqueues with this key itself, takes too long",
        job.kind,
        job.dedup_key.as_deref().unwrap_or_default()
    );
    Error::new(ErrorKind::Contended, what)
}

fn in_vain(it: &Queued, trouble: Option<&Fault>) -> Error {
    if !it.held_up {
        let when = if it.has_met { "in the time that `merge` had left" } else { "in time" };
        return unreached(ErrorKind::NotEnqueued, "the job was not enqueued: ", when, trouble);
    }
    let (kind, key) = it.key();
    let what = format!(
        "the job was not enqueued: others had the dedup key {:?} of {kind} for as long as this one waited; try again later",
        key.unwrap_or_default()
    );
    Error::new(ErrorKind::Contended, what)
}
