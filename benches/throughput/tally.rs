//! Counting the jobs of one process, with a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Shared by all handlers of a process. A clone is the same tally.
#[derive(Clone, Debug)]
pub(crate) struct Tally(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    /// The same moment on the clock that all processes of this machine share.
    began_at: f64,
    first: AtomicU64,
    last: AtomicU64,
    count: AtomicUsize,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            began: Instant::now(),
            began_at: UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64()),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
            count: AtomicUsize::new(0),
        }))
    }

    /// Counts one job as in hand.
    pub(crate) fn count(&self) {
        let now = u64::try_from(self.0.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.0.first.load(Ordering::Relaxed) > now {
            self.0.first.fetch_min(now, Ordering::Relaxed);
        }
        self.0.last.fetch_max(now, Ordering::Relaxed);
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Seconds on the shared clock.
    pub(crate) fn began(&self) -> f64 {
        self.0.began_at
    }

    pub(crate) fn first(&self) -> f64 {
        self.at(&self.0.first)
    }

    pub(crate) fn last(&self) -> f64 {
        self.at(&self.0.last)
    }

    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes are far below 2^52")]
    fn at(&self, nanoseconds: &AtomicU64) -> f64 {
        self.0.began_at + nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// Seconds on the clock that all processes of this machine share.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
