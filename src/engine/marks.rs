//! Where a claim may begin to look, while the index still has entries of rows that are gone.
//!
//! They pile up at the head of the ready index, until vacuum comes by, or for as long as somebody's old snapshot keeps
//! them: a worker that takes 20,000 jobs a second leaves a million behind in the minute between two rounds of autovacuum.
//! A claim steps over all of them each time (3 ms per million, 100 ms while a snapshot keeps them). From the keys of
//! what it last got, the engine then knows where the living begin. What comes back behind a mark, such as a retry, is
//! found by the full looks in between, and by the one that always comes before the worker goes idle.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use crate::job::ClaimedJob;
use crate::statement::Bounds;
use crate::time::later;

/// A full look that took longer is followed by bounded ones, if those cost less. A look over living rows takes half of it.
const SLOW: Duration = Duration::from_micros(200);

/// How many times what it costs lies between two full looks, so that they take at most a tenth of the time.
const REST: u32 = 10;

/// A job's place in its kind and priority: the database's `created_at` and the id.
type Key = (std::time::SystemTime, i64);

#[derive(Debug)]
pub(super) struct Marks {
    /// By kind and priority: the first key of the last batch that had any.
    low: Vec<[Option<Key>; 3]>,
    /// Until then claims may begin at the marks; nothing while full looks are quick.
    bounded_until: Option<Instant>,
    /// What a bounded look took lately. It probes each priority, so with many kinds it may cost more than a full one.
    bounded_took: Duration,
    /// What the last full look took.
    full_took: Duration,
}

impl Marks {
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            low: vec![[None; 3]; kinds],
            bounded_until: None,
            bounded_took: Duration::ZERO,
            full_took: Duration::ZERO,
        }
    }

    /// The next claim looks at everything.
    pub(super) fn look_fully(&mut self) {
        self.bounded_until = None;
    }

    /// Where to begin for these kinds; nothing: at the beginning.
    pub(super) fn bounds(&self, now: Instant, kinds: impl Iterator<Item = usize>) -> Option<Bounds> {
        if self.bounded_until.is_none_or(|until| until <= now) {
            return None;
        }
        let keys = kinds.flat_map(|kind| self.low.get(kind).copied().unwrap_or_default());
        let (created_at, ids) = keys.map(|key| (key.map(|key| key.0), key.map_or(0, |key| key.1))).unzip();
        Some(Bounds { created_at, ids })
    }

    /// A full look took so long, until it had its rows.
    pub(super) fn looked_fully(&mut self, now: Instant, took: Duration) {
        let pays = took > SLOW && took > self.bounded_took;
        self.bounded_until = pays.then(|| later(now, took.saturating_mul(REST)));
        // So that what once was dear is tried again.
        self.bounded_took = self.bounded_took / 8 * 7;
        self.full_took = took;
    }

    /// A bounded look took so long.
    pub(super) fn looked_from_marks(&mut self, took: Duration) {
        self.bounded_took = took;
        if took > self.full_took {
            self.look_fully();
        }
    }

    /// Takes note of a batch, which is in the order of claims, while it is of use.
    pub(super) fn note<'a>(&mut self, batch: impl Iterator<Item = (usize, &'a ClaimedJob)>) {
        if self.bounded_until.is_none() {
            return;
        }
        let mut seen = vec![[false; 3]; self.low.len()];
        for (kind, job) in batch {
            let priority = usize::from(job.priority.code().unsigned_abs());
            let place = self.low.get_mut(kind).and_then(|low| low.get_mut(priority));
            let seen = seen.get_mut(kind).and_then(|seen| seen.get_mut(priority));
            if let (Some(place), Some(seen)) = (place, seen) {
                if !std::mem::replace(seen, true) {
                    *place = Some((job.created_at, job.id.job));
                }
            }
        }
    }
}
