//! How much there is to do.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How many jobs there are, all as of one instant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The instant, by the database's clock.
    pub at: SystemTime,
    /// By kind. A kind without anything in [`KindStats`] is not among them.
    pub kinds: BTreeMap<String, KindStats>,
}

/// How many jobs of one kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindStats {
    /// Pending, and due.
    pub ready: u64,
    /// Pending, and due later: delayed, paused by their handlers, or waiting after a failure.
    pub scheduled: u64,
    /// Claimed by a worker.
    pub claimed: u64,
    /// Dead.
    pub dead: u64,
    /// Ended within the last minute: completed, dead or cancelled.
    pub finished_last_minute: u64,
    /// For how long the longest waiting ready job has been due. `None`: none is ready.
    pub oldest_ready: Option<Duration>,
    /// Whether the kind is paused.
    pub paused: bool,
}

impl Stats {
    /// All kinds together; `paused` says whether any of them is.
    #[must_use]
    pub fn total(&self) -> KindStats {
        self.kinds.values().fold(KindStats::default(), |sum, kind| KindStats {
            ready: sum.ready + kind.ready,
            scheduled: sum.scheduled + kind.scheduled,
            claimed: sum.claimed + kind.claimed,
            dead: sum.dead + kind.dead,
            finished_last_minute: sum.finished_last_minute + kind.finished_last_minute,
            oldest_ready: sum.oldest_ready.max(kind.oldest_ready),
            paused: sum.paused || kind.paused,
        })
    }
}

/// What one worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerClaims {
    /// Who, as workers name themselves: `host:pid:suffix`, unless they are given a name.
    pub worker: String,
    /// Jobs that it has claimed.
    pub claims: u64,
    /// Of these, how many have leases that ran out.
    pub expired: u64,
    /// How long the lease that ends first has left. `None`: it has run out.
    pub lease_left: Option<Duration>,
    /// The kinds of these jobs, by name; at most 20.
    pub kinds: Vec<String>,
}

/// A kind whose jobs stay pending.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedKind {
    /// The kind.
    pub kind: String,
    /// When it was paused, by the database's clock.
    pub since: SystemTime,
}
