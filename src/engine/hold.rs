//! How long recovery waits after this worker's own link came back, so that others can come back and renew.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use crate::time::later;

/// Only time with a link counts, as others have theirs then, too; what an outage takes is added, up to the whole time.
///
/// So a long outage has the whole time after it, and a link that is lost again and again, each time for a moment,
/// doesn't keep this worker from recovering for ever.
#[derive(Debug, Default)]
pub(super) struct Hold {
    until: Option<Instant>,
    /// While the link is away: since when, and what was left then.
    away: Option<(Instant, Duration)>,
}

impl Hold {
    pub(super) fn pass_time(&mut self, now: Instant) {
        self.until.take_if(|until| *until <= now);
    }

    /// When it is over; nothing if it is.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// The link is lost, or could not be made.
    pub(super) fn lost(&mut self, now: Instant) {
        let left = self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        self.away.get_or_insert((now, left));
    }

    /// The link is there again. The hold lasts so long, unless it is an earlier one that goes on.
    pub(super) fn back(&mut self, now: Instant, whole: Duration) {
        let lasting = match self.away.take() {
            Some((since, left)) if !left.is_zero() => {
                whole.min(left.saturating_add(now.saturating_duration_since(since)))
            }
            _ => whole,
        };
        self.until = Some(later(now, lasting));
    }
}
