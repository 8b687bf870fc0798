//! The one file of this front-end that reads the clock.

use std::time::{Instant, SystemTime};

#[expect(clippy::disallowed_methods, reason = "the state machines are told what time it is from here")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// This machine's own time of day: for the diagnosis, which compares it with the server's.
#[expect(clippy::disallowed_methods, reason = "only compared for the diagnosis, never stored")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}
