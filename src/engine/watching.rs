//! The watch link: listening, renewing, and telling other workers about rows that became claimable.
//!
//! Interest, LISTEN, look: in this order a job is either seen by the look, or whoever has stored it sees the interest and
//! tells of it (`src/interest.rs`). The first two are said on each connection anew. A refused interest, such as for want
//! of shared memory, keeps the worker from nothing: it listens all the same, hears what is told for others or for
//! everybody, finds the rest when it polls, and tries again; then it looks once more.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::purpose::Purpose;
use super::{Engine, Link, Output};
use crate::interest;
use crate::notification::{self, Kinds};
use crate::statement::{Ending, Notify, Settlement, Statement};
use crate::time::{later, seconds, sooner};

/// How long the watch link may be silent before it is asked for a sign of life. A hung server or a network that drops
/// silently would else be noticed only when a renewal is due, and notifications would be missed until then.
const SILENCE: Duration = Duration::from_secs(30);

/// How many of our own notifications are remembered, to know them when they come back.
const REMEMBERED: usize = 64;

/// How long after a refused interest it is said again. What else the link has to do waits as long for each attempt.
pub(super) const INTEREST_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Watching {
    check: Check,
    /// When to say what this worker listens for; nothing: it is said, or there is nothing to say.
    interest_at: Option<Instant>,
    listening: bool,
    /// When the silence of the link has lasted too long.
    pulse_at: Option<Instant>,
    /// Kinds with jobs that became claimable at once.
    ready: BTreeSet<String>,
    /// Kinds with jobs that will be due, and the soonest of them.
    due: BTreeMap<String, Instant>,
    /// A row of an unknown kind became claimable.
    everything: bool,
    echoes: VecDeque<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Check {
    #[default]
    Wanted,
    Asked,
    Done,
}

impl Watching {
    pub(super) fn is_checked(&self) -> bool {
        self.check != Check::Wanted
    }

    pub(super) fn checking(&mut self) {
        self.check = Check::Asked;
    }

    pub(super) fn checked(&mut self) {
        self.check = Check::Done;
    }

    pub(super) fn unchecked(&mut self) {
        self.check = Check::Wanted;
    }

    pub(super) fn unlistened(&mut self) {
        self.listening = false;
    }

    pub(super) fn uninterested(&mut self, now: Instant) {
        self.interest_at = Some(later(now, INTEREST_AGAIN));
    }

    pub(super) fn announce_no_more(&mut self) {
        self.ready.clear();
        self.due.clear();
        self.everything = false;
    }

    pub(super) fn has_announcements(&self) -> bool {
        self.everything || !self.ready.is_empty() || !self.due.is_empty()
    }

    /// The next notification to send.
    fn announcement(&mut self, now: Instant, channel: &str) -> Option<Notify> {
        let tell = |kinds: &[&str], due_in| Notify::new(channel, kinds, due_in, &[]);
        let notify = if std::mem::take(&mut self.everything) {
            self.ready.clear();
            self.due.clear();
            tell(&[], Duration::ZERO)
        } else if !self.ready.is_empty() {
            let kinds = std::mem::take(&mut self.ready);
            tell(&borrowed(kinds.iter()), Duration::ZERO)
        } else {
            let due = std::mem::take(&mut self.due);
            let soonest = due.values().min()?;
            tell(&borrowed(due.keys()), soonest.saturating_duration_since(now))
        };
        self.echoes.push_back(notify.payload.clone());
        if self.echoes.len() > REMEMBERED {
            self.echoes.pop_front();
        }
        Some(notify)
    }

    /// Whether this is a notification of ours that comes back.
    fn is_echo(&mut self, payload: &str) -> bool {
        let found = self.echoes.iter().position(|echo| echo == payload);
        found.and_then(|at| self.echoes.remove(at)).is_some()
    }
}

fn borrowed<'a>(kinds: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    kinds.map(String::as_str).collect()
}

impl Engine {
    pub(super) fn watching_again(&mut self, now: Instant) {
        self.watching.pulse_at = Some(later(now, SILENCE));
        self.watching.interest_at = self.rules.listen.then_some(now);
        self.watching.listening = false;
        self.watching.echoes.clear();
    }

    /// LISTEN is in force.
    pub(super) fn listening(&mut self) {
        self.watching.listening = true;
        self.look_for_what_was_missed();
    }

    /// From here on this worker is told of its kinds. If it listens already, its interest was refused before.
    pub(super) fn interested(&mut self) {
        if self.watching.listening {
            self.look_for_what_was_missed();
        }
    }

    /// What was notified before was not heard, and what nobody seemed to wait for was not notified.
    fn look_for_what_was_missed(&mut self) {
        self.claiming.doubt();
        self.look_for_cancellations();
    }

    /// A hint from a producer or another worker. Foreign kinds cost nothing.
    pub(super) fn notified(&mut self, now: Instant, payload: &str) {
        if self.watching.is_echo(payload) {
            return;
        }
        let news = notification::parse(payload);
        self.heard_cancelled(&news.cancelled);
        if !news.is_about_jobs() {
            return;
        }
        let ours = match &news.kinds {
            Kinds::All => true,
            Kinds::Some(kinds) => kinds.iter().any(|kind| self.kind_index(kind).is_some()),
        };
        if !ours {
            return;
        }
        if news.due_in.is_zero() {
            self.claiming.wake();
        } else {
            self.claiming.due_at(later(now, news.due_in));
        }
    }

    /// No other worker was interested in this notification, so it does not come back.
    pub(super) fn told_nobody(&mut self, now: Instant, payload: &str) {
        if !self.watching.is_echo(payload) {
            // An equal one, of somebody else's, was taken for it.
            self.notified(now, payload);
        }
    }

    /// A lost hint is worth no retry of its own: whoever listens polls as well. But the next one shall say all.
    pub(super) fn announcement_failed(&mut self, now: Instant, payload: &str) {
        self.told_nobody(now, payload);
        self.watching.everything = true;
    }

    /// Tells others, and this worker itself, about a job that its settlement put back.
    pub(super) fn announce_settlement(&mut self, now: Instant, kind: Option<usize>, settlement: &Settlement) {
        if !matches!(settlement.outcome, Ending::Retried | Ending::Paused | Ending::Released) {
            return;
        }
        match kind.and_then(|kind| self.rule(kind)).map(|rule| rule.kind) {
            Some(kind) => self.announce_repended(now, kind, settlement.delay),
            None => {
                self.watching.everything = true;
                self.claiming.wake();
            }
        }
    }

    pub(super) fn announce_repended(&mut self, now: Instant, kind: &str, delay: f64) {
        let ours = self.kind_index(kind).is_some();
        if delay > 0.0 {
            let at = later(now, seconds(delay));
            let soonest = self.watching.due.entry(kind.to_owned()).or_insert(at);
            *soonest = at.min(*soonest);
            if ours {
                self.claiming.due_at(at);
            }
        } else {
            self.watching.ready.insert(kind.to_owned());
            if ours {
                self.claiming.wake();
            }
        }
    }

    /// Promoted more than this worker has slots for: others shall come. Which kinds they are is not known.
    pub(super) fn announce_own(&mut self, promoted: u64) {
        if promoted > u64::try_from(self.free_slots(0)).unwrap_or(u64::MAX) {
            let kinds = self.all_kinds();
            self.watching.ready.extend(kinds.into_iter().map(str::to_owned));
        }
    }

    pub(super) fn drive_watch(&mut self, now: Instant) {
        if self.is_stopped() || self.watching.check != Check::Done {
            return;
        }
        if let Some(epoch) = self.watch.connect(now) {
            self.outbox.push_back(Output::Connect(Link::Watch, epoch));
        }
        if let Some((statement, purpose)) = self.next_watch(now) {
            self.watching.pulse_at = Some(later(now, SILENCE));
            self.execute(now, Link::Watch, statement, purpose);
        }
    }

    fn next_watch(&mut self, now: Instant) -> Option<(Statement, Purpose)> {
        if let Some(renewal) = self.renewal_due(now, Link::Watch) {
            return Some(renewal);
        }
        if !self.watch.is_idle() {
            return None;
        }
        if self.watching.interest_at.take_if(|at| *at <= now).is_some() {
            let keys = interest::of_worker(&self.rules.channel, &self.all_kinds());
            return Some((Statement::Interest(keys), Purpose::Interest));
        }
        if self.rules.listen && !self.watching.listening {
            return Some((Statement::Listen, Purpose::Listen));
        }
        if let Some(look) = self.next_cancellations(now) {
            return Some(look);
        }
        if let Some(notify) = self.watching.announcement(now, &self.rules.channel) {
            let purpose = Purpose::Notify(notify.payload.clone());
            return Some((Statement::Notify(notify), purpose));
        }
        if let Some(sweep) = self.next_sweep(now) {
            return Some(sweep);
        }
        let silent = self.watching.pulse_at.is_some_and(|at| at <= now);
        silent.then_some((Statement::Check, Purpose::Pulse))
    }

    /// When the watch link has to be driven again although nothing happens.
    pub(super) fn watch_deadline(&self) -> Option<Instant> {
        if self.watching.check != Check::Done {
            return None;
        }
        let sweep = self.sweeping.deadline().filter(|_| self.is_running());
        let look = sooner(self.cancelling.deadline(), sweep);
        let look = sooner(look, self.watching.interest_at);
        let idle = sooner(self.watching.pulse_at, look).filter(|_| self.watch.is_idle());
        sooner(self.watch.deadline(), idle)
    }
}
