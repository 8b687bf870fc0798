//! What time it is on a worker's machine: none of them agrees with the server, nor with each other.

use std::time::{Duration, Instant};

/// A clock that was set wrong, and that runs too fast or too slow.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine::tests) struct Clock {
    pub(in crate::engine::tests) ahead: Duration,
    /// Parts in a million by which it is too fast.
    pub(in crate::engine::tests) drift: i32,
}

const MILLION: u128 = 1_000_000;

impl Clock {
    fn rate(self) -> u128 {
        u128::try_from(1_000_000 + i64::from(self.drift)).unwrap()
    }

    /// What it shows when so much time has really passed.
    pub(super) fn shows(self, start: Instant, time: Duration) -> Instant {
        start + self.ahead + nanos(time.as_nanos() * self.rate() / MILLION)
    }

    /// How much time has really passed when it shows this, or a little more.
    pub(super) fn time_at(self, start: Instant, shown: Instant) -> Duration {
        let elapsed = shown.saturating_duration_since(start + self.ahead).as_nanos();
        nanos((elapsed * MILLION).div_ceil(self.rate()))
    }

    /// How long a time of its own can really take.
    pub(in crate::engine::tests) fn longest(self, own: Duration) -> Duration {
        nanos((own.as_nanos() * MILLION).div_ceil(self.rate()))
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap())
}
