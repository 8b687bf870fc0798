//! What a queue's handle may be told.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::limits::MAX_PAYLOAD;

use super::call::Request;

/// Long enough for a restart of the server, short enough for somebody who waits behind a web page.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// PostgreSQL takes up to 1 GB in a statement, and a payload is in memory several times on its way.
const LARGEST_PAYLOAD: usize = 100_000_000;

/// Sixteen of the largest batches.
const DEFAULT_MAX_WAITING: usize = 128_000_000;

/// The knobs of a `Queue`, within their bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) timeout: Duration,
    pub(crate) max_payload: usize,
    pub(crate) max_waiting: usize,
    pub(crate) notify: bool,
    /// Whether somebody wants to hear of each job.
    pub(crate) observed: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            timeout: DEFAULT_TIMEOUT,
            max_payload: MAX_PAYLOAD,
            max_waiting: DEFAULT_MAX_WAITING,
            notify: true,
            observed: false,
        }
    }
}

impl Rules {
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    }

    /// A probe is what connecting waits for, and it comes before any other call.
    pub(super) fn patience(&self, request: &Request) -> Duration {
        match request {
            Request::Probe => self.timeout.max(DEFAULT_TIMEOUT),
            Request::Enqueue(_) | Request::Keyed(_) | Request::RecoverStale | Request::Inquire(_) => self.timeout,
        }
    }

    pub(crate) fn set_max_payload(&mut self, bytes: usize) {
        self.max_payload = bytes.clamp(1, LARGEST_PAYLOAD);
    }
}

/// The setters of a builder that has the fields `rules: Rules` and `observers: Observers`.
///
/// Written once so that the two front-ends cannot drift apart.
#[cfg(any(feature = "blocking", feature = "async"))]
macro_rules! queue_knobs {
    () => {
        /// How long a call waits for a server that can't be reached or refuses work for now, before it fails with
        /// [`ErrorKind::NotEnqueued`](crate::ErrorKind::NotEnqueued). Default: 10 seconds.
        ///
        /// Clamped to 10 ms … 1 hour. What has been sent is waited for until its answer comes, 12 seconds at most.
        /// `connect` itself waits for 10 seconds at least.
        #[must_use]
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.rules.set_timeout(timeout);
            self
        }

        /// How many bytes the JSON text of a payload may have; a longer one is refused with
        /// [`ErrorKind::Payload`](crate::ErrorKind::Payload). Default: 1,000,000.
        ///
        /// Clamped to 1 … 100,000,000; it has to reach the server within the 10 seconds that a statement may take. Large
        /// data is better kept elsewhere and named by the payload.
        #[must_use]
        pub fn max_payload(mut self, bytes: usize) -> Self {
            self.rules.set_max_payload(bytes);
            self
        }

        /// How many bytes the calls that wait may hold together, payloads and some 200 bytes for each job; a call that
        /// comes on top is refused with [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded). Default: 128,000,000.
        ///
        /// It bounds the memory that calls take while the server is away. When nothing else waits, a call is taken
        /// whatever its size, so 0 means one at a time.
        #[must_use]
        pub fn max_waiting(mut self, bytes: usize) -> Self {
            self.rules.max_waiting = bytes;
            self
        }

        /// Tells an [`Observer`](crate::Observer) what happens in this queue. Default: only the log is told.
        ///
        /// Called several times, each is told, in that order, on a thread named `venturi-observer`.
        #[must_use]
        pub fn observer(mut self, observer: impl $crate::Observer) -> Self {
            self.observers.add(observer);
            self.rules.observed = true;
            self
        }

        /// Whether workers that listen for their kinds are told of new jobs. Default: yes.
        ///
        /// Without it, workers find them when they next look, after their `poll_max` at the latest; enqueueing is a
        /// little cheaper.
        #[must_use]
        pub fn notify(mut self, notify: bool) -> Self {
            self.rules.notify = notify;
            self
        }
    };
}
#[cfg(any(feature = "blocking", feature = "async"))]
pub(crate) use queue_knobs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_knobs_are_brought_into_range() {
        let mut rules = Rules::default();
        rules.set_timeout(Duration::ZERO);
        rules.set_max_payload(0);
        assert_eq!((rules.timeout, rules.max_payload), (MIN_TIMEOUT, 1));
        rules.set_timeout(Duration::MAX);
        rules.set_max_payload(usize::MAX);
        assert_eq!((rules.timeout, rules.max_payload), (MAX_TIMEOUT, LARGEST_PAYLOAD));
    }
}
