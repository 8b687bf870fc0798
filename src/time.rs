//! Sums of instants and delays that cannot overflow.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use crate::limits::MAX_DELAY;

/// The earlier of two instants, either of which may be missing.
pub(crate) fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// `now + wait`, or about a century later when that cannot be represented.
pub(crate) fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).or_else(|| now.checked_add(MAX_DELAY)).unwrap_or(now)
}

/// Seconds as the server reports them; never negative, never more than a century.
pub(crate) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(MAX_DELAY).min(MAX_DELAY)
}
