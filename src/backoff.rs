//! How long a job waits after a failure, and how long a statement or a connection waits before it is tried again.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::limits::MAX_DELAY;

const DEFAULT_BASE: Duration = Duration::from_millis(500);
const DEFAULT_CAP: Duration = Duration::from_secs(120);

/// A smaller base would make every delay zero.
const MIN_BASE: Duration = Duration::from_millis(1);

/// How the delay of a job grows with its failures: with the Fibonacci numbers, up to a cap.
///
/// After the n-th failure a job waits `base × (fib(n) − 1)`, at most `cap`: with the default base nothing, nothing,
/// 0.5 s, 1 s, 2 s, 3.5 s, 6 s, … The first two are free because most failures are gone at the next try. Jitter then
/// shortens the delay.
///
/// Default: base 500 ms, cap 2 minutes.
///
/// ```
/// use std::time::Duration;
/// use venturi::Backoff;
///
/// let patient = Backoff::new(Duration::from_secs(5), Duration::from_secs(3_600));
/// assert_eq!(patient.cap(), Duration::from_secs(3_600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: DEFAULT_BASE, cap: DEFAULT_CAP }
    }
}

impl Backoff {
    /// A backoff with this unit and this longest delay.
    ///
    /// `base` is clamped to 1 ms … 100 years, `cap` to `base` … 100 years. With `cap` equal to `base` every delay after
    /// the second failure is the same.
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Self {
        let base = base.clamp(MIN_BASE, MAX_DELAY);
        Self { base, cap: cap.clamp(base, MAX_DELAY) }
    }

    /// The unit that is multiplied.
    #[must_use]
    pub fn base(&self) -> Duration {
        self.base
    }

    /// The longest delay.
    #[must_use]
    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// The delay of a job that has now failed `failures` times, somewhere in `[d × (1 − jitter), d]`.
    ///
    /// The same job and failure give the same delay in every process, so a retried settlement writes what the first
    /// attempt wrote.
    pub(crate) fn delay(self, failures: u32, jitter: f64, job: i64) -> Duration {
        let full = multiplier(failures).map_or(self.cap, |times| self.base.saturating_mul(times)).min(self.cap);
        let seed = mix(u64::from_le_bytes(job.to_le_bytes()));
        shortened(full, jitter, mix(seed ^ u64::from(failures)))
    }

    /// The delay after a run that left no answer: at least the base, or the next worker could be pulled down at once.
    pub(crate) fn recovery_delay(self, failures: u32, jitter: f64, job: i64) -> Duration {
        self.delay(failures, jitter, job).max(self.base)
    }
}

/// `fib(n) − 1`, or nothing once it is past every cap.
fn multiplier(n: u32) -> Option<u32> {
    let (mut fib, mut next) = (0_u32, Some(1_u32));
    for _ in 0..n {
        (fib, next) = (next?, fib.checked_add(next?));
    }
    Some(fib.saturating_sub(1))
}

/// `full` less the part of `jitter` (0 to 1) of it that the random number says.
fn shortened(full: Duration, jitter: f64, random: u64) -> Duration {
    let factor = 1.0 - jitter.clamp(0.0, 1.0) * (1.0 - unit(random));
    Duration::try_from_secs_f64(full.as_secs_f64() * factor).map_or(full, |delay| delay.min(full))
}

/// A random number as a fraction in `[0, 1)`.
fn unit(random: u64) -> f64 {
    const BITS: u32 = f64::MANTISSA_DIGITS;
    (random >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
}

/// One step of `SplitMix64`: numbers that look random, the same ones for the same input.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The waits between the attempts of one statement or one connection: 100 ms doubling to 5 s, each shortened by up to
/// half, so that workers which lost the same server don't come back together.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    random: u64,
    full: Duration,
    longest: Duration,
    first: Duration,
}

impl Retry {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);
    const JITTER: f64 = 0.5;

    pub(crate) fn new(seed: u64) -> Self {
        Self::between(seed, Self::FIRST, Self::LONGEST)
    }

    /// With other limits.
    pub(crate) fn between(seed: u64, first: Duration, longest: Duration) -> Self {
        Self { random: seed, full: first, longest, first }
    }

    pub(crate) fn next_delay(&mut self) -> Duration {
        let full = self.full;
        self.full = full.saturating_mul(2).min(self.longest);
        self.random = mix(self.random);
        shortened(full, Self::JITTER, self.random)
    }

    /// To be called after a success.
    pub(crate) fn reset(&mut self) {
        self.full = self.first;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn exact(backoff: Backoff, failures: u32) -> Duration {
        backoff.delay(failures, 0.0, 1)
    }

    #[test]
    fn the_default_grows_from_half_a_second_to_two_minutes() {
        let delays: Vec<u128> = (0..8).map(|n| exact(Backoff::default(), n).as_millis()).collect();
        assert_eq!(delays, [0, 0, 0, 500, 1_000, 2_000, 3_500, 6_000]);
        assert_eq!(exact(Backoff::default(), 20), DEFAULT_CAP);
    }

    #[test]
    fn multipliers_are_the_fibonacci_numbers_less_one() {
        let wanted = [0, 0, 1, 2, 4, 7, 12, 20, 33, 54, 88, 143, 232, 376];
        let found: Vec<u32> = (1..).take(wanted.len()).map(|n| multiplier(n).unwrap()).collect();
        assert_eq!(found, wanted);
        assert_eq!(multiplier(0), Some(0));
        assert_eq!(multiplier(47), Some(2_971_215_072));
        assert_eq!(multiplier(48), None);
        assert_eq!(multiplier(u32::MAX), None);
    }

    #[test]
    fn degenerate_settings_are_clamped() {
        let zero = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!((zero.base(), zero.cap()), (MS, MS));
        let upside_down = Backoff::new(Duration::from_secs(9), Duration::from_secs(1));
        assert_eq!(upside_down.cap(), Duration::from_secs(9));
        let endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!((endless.base(), endless.cap()), (MAX_DELAY, MAX_DELAY));
    }

    #[test]
    fn a_recovered_job_never_comes_back_at_once() {
        assert_eq!(Backoff::default().recovery_delay(1, 0.5, 7), DEFAULT_BASE);
        assert!(Backoff::default().recovery_delay(9, 0.5, 7) > DEFAULT_BASE);
    }

    #[test]
    fn jitter_differs_between_jobs_and_between_failures() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
        assert_ne!(backoff.delay(9, 1.0, 1), backoff.delay(9, 1.0, 2));
        assert_ne!(backoff.delay(9, 1.0, 1), backoff.delay(10, 1.0, 1));
    }

    #[test]
    fn jitter_spreads_over_its_whole_range() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
        let delays: Vec<f64> = (0..1_000).map(|job| backoff.delay(9, 0.5, job).as_secs_f64()).collect();
        assert!(delays.iter().all(|delay| (0.5..=1.0).contains(delay)));
        let mean = delays.iter().sum::<f64>() / 1_000.0;
        assert!((0.73..0.77).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn a_delay_is_deterministic_and_bounded(
            base in 1_u64..10_000_000,
            cap in any::<u64>(),
            n in any::<u32>(),
            job in any::<i64>(),
            jitter in any::<f64>(),
        ) {
            let backoff = Backoff::new(Duration::from_millis(base), Duration::from_millis(cap));
            let full = backoff.delay(n, 0.0, job);
            let delay = backoff.delay(n, jitter, job);
            prop_assert_eq!(delay, backoff.delay(n, jitter, job));
            prop_assert!(delay <= full && full <= backoff.cap());
            let half = backoff.delay(n, 0.5, job);
            prop_assert!(half.as_secs_f64() >= full.as_secs_f64() * 0.499_999);
        }

        #[test]
        fn delays_never_shrink_with_more_failures(base in 1_u64..10_000, cap in any::<u64>(), n in 0_u32..100) {
            let backoff = Backoff::new(Duration::from_millis(base), Duration::from_millis(cap));
            prop_assert!(exact(backoff, n) <= exact(backoff, n + 1));
        }
    }

    #[test]
    fn retries_double_up_to_five_seconds_and_start_over_after_a_success() {
        let mut retry = Retry::new(3);
        for full in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let wait = retry.next_delay();
            assert!(wait <= MS * full && wait >= MS * full / 2, "{wait:?} for {full} ms");
        }
        retry.reset();
        assert!(retry.next_delay() <= Retry::FIRST);
    }

    #[test]
    fn two_workers_retry_at_different_times() {
        assert_ne!(Retry::new(1).next_delay(), Retry::new(2).next_delay());
    }
}
