//! The one place of this front-end that reads the clock.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "the state machines are told what time it is from here")]
pub(super) fn now() -> Instant {
    Instant::now()
}
