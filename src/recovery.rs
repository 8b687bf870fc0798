//! What becomes of a claim whose lease has run out: the one rule, for workers and for recovery by hand.
#![deny(clippy::disallowed_methods)]

use crate::Backoff;
use crate::statement::{Recovery, StaleRow};

/// How many expired claims one pass recovers at most; more take more passes.
pub(crate) const PASS: i32 = 500;

/// A look-back without bound, in seconds.
pub(crate) const UNBOUNDED: f64 = f64::INFINITY;

/// A failed run, which waits at least the backoff's base: a crash must not be repeated at once.
pub(crate) fn decide(row: StaleRow, backoff: Backoff, jitter: f64, backstop: Option<u32>) -> Recovery {
    // Written by hand it may be negative.
    let failures = row.failure_count.max(0).unsigned_abs().saturating_add(1);
    let delay = backoff.recovery_delay(failures, jitter, row.id.job);
    let dead = is_beyond(backstop, failures);
    Recovery { id: row.id, claimed_by: row.claimed_by, dead, delay: delay.as_secs_f64() }
}

/// Whether a job with so many failures goes to dead.
pub(crate) fn is_beyond(backstop: Option<u32>, failures: u32) -> bool {
    backstop.is_some_and(|most| failures >= most)
}
