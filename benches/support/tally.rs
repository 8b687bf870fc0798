//! Counting jobs down, with a clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use venturi::CancellationToken;

use super::Result;

/// Shared by all handlers of a run. A clone is the same tally.
#[derive(Clone, Debug)]
pub(crate) struct Tally(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    first: OnceLock<Instant>,
    last: OnceLock<Instant>,
    left: AtomicUsize,
    all_done: CancellationToken,
}

/// The three parts of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From nothing to the first job in hand.
    pub(crate) start: Duration,
    /// From there to the last job in hand.
    pub(crate) drain: Duration,
    /// From there to the end, with the last results stored and all threads gone.
    pub(crate) stop: Duration,
}

impl Tally {
    pub(crate) fn new(jobs: usize) -> Self {
        Self(Arc::new(Inner {
            began: Instant::now(),
            first: OnceLock::new(),
            last: OnceLock::new(),
            left: AtomicUsize::new(jobs),
            all_done: CancellationToken::new(),
        }))
    }

    /// Counts one job as run.
    pub(crate) fn count(&self) {
        self.0.first.get_or_init(Instant::now);
        if self.0.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = self.0.last.set(Instant::now());
            self.0.all_done.cancel();
        }
    }

    /// Cancelled when all are counted.
    pub(crate) fn all_done(&self) -> CancellationToken {
        self.0.all_done.clone()
    }

    /// To be asked when everything has returned.
    pub(crate) fn times(&self) -> Result<Times> {
        let end = Instant::now();
        let first = self.0.first.get().ok_or("no job was run")?;
        let last = self.0.last.get().ok_or("not all jobs were run")?;
        Ok(Times { start: *first - self.0.began, drain: *last - *first, stop: end - *last })
    }
}
