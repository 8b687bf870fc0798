//! One connection, as a state machine sees it: down, on its way, or up with at most one statement in flight.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use crate::backoff::Retry;
use crate::time::{later, sooner};

/// How long a statement may take before its link is dropped. The server's own `statement_timeout` is 10 s, so a
/// healthy link answers with an error before this; only a hung server or network gets here.
pub(crate) const STATEMENT_DEADLINE: Duration = Duration::from_secs(12);

/// How long connecting may take, all hosts, TLS and authentication included.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(60);

/// Which connection of a link is meant: grows by one with each attempt to connect, so that what a dropped connection
/// still says can be told from what its successor says.
pub(crate) type Epoch = u64;

/// Names a statement that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatementId(pub(crate) u64);

/// A connection that is kept up; `P` says what a statement in flight is for.
#[derive(Debug)]
pub(crate) struct LinkState<P> {
    pub(crate) epoch: Epoch,
    status: Status<P>,
    retry: Retry,
    /// Whether a connection of this link has ever worked.
    pub(crate) proven: bool,
}

#[derive(Debug)]
enum Status<P> {
    Down { retry_at: Instant },
    Connecting { deadline: Instant },
    Up { in_flight: Option<InFlight<P>>, paused_until: Option<Instant> },
}

#[derive(Debug)]
struct InFlight<P> {
    id: StatementId,
    purpose: P,
    deadline: Instant,
}

impl<P> LinkState<P> {
    pub(crate) fn new(seed: u64, now: Instant) -> Self {
        Self { epoch: 0, status: Status::Down { retry_at: now }, retry: Retry::new(seed), proven: false }
    }

    /// If it is time to connect: the epoch of the new attempt.
    pub(crate) fn connect(&mut self, now: Instant) -> Option<Epoch> {
        match self.status {
            Status::Down { retry_at } if retry_at <= now => {
                self.epoch += 1;
                self.status = Status::Connecting { deadline: later(now, CONNECT_DEADLINE) };
                Some(self.epoch)
            }
            _ => None,
        }
    }

    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && !matches!(self.status, Status::Down { .. })
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.status, Status::Up { .. })
    }

    /// Up, with nothing in flight and not waiting after a failed statement.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.status, Status::Up { in_flight: None, paused_until: None })
    }

    /// Up, with nothing in flight, whether it waits after a failed statement or not.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.status, Status::Up { in_flight: None, .. })
    }

    pub(crate) fn pass_time(&mut self, now: Instant) {
        if let Status::Up { paused_until, .. } = &mut self.status {
            paused_until.take_if(|until| *until <= now);
        }
    }

    /// Whatever is in flight is not waited for any longer.
    pub(crate) fn forget(&mut self) {
        if let Status::Up { in_flight, .. } = &mut self.status {
            *in_flight = None;
        }
    }

    pub(crate) fn up(&mut self) {
        self.status = Status::Up { in_flight: None, paused_until: None };
    }

    /// A statement succeeded: what went wrong before is over.
    pub(crate) fn healthy(&mut self) {
        self.proven = true;
        self.retry.reset();
    }

    /// The connection is gone; returns how long to wait before the next one, and what was in flight.
    pub(crate) fn down(&mut self, now: Instant) -> (Duration, Option<P>) {
        let wait = self.retry.next_delay();
        let before = std::mem::replace(&mut self.status, Status::Down { retry_at: later(now, wait) });
        let purpose = match before {
            Status::Up { in_flight, .. } => in_flight.map(|it| it.purpose),
            _ => None,
        };
        (wait, purpose)
    }

    /// A statement was refused for now: nothing is sent for a while.
    pub(crate) fn pause(&mut self, now: Instant) -> Duration {
        let wait = self.retry.next_delay();
        if let Status::Up { paused_until, .. } = &mut self.status {
            *paused_until = Some(later(now, wait));
        }
        wait
    }

    pub(crate) fn sent(&mut self, id: StatementId, purpose: P, now: Instant) {
        if let Status::Up { in_flight, .. } = &mut self.status {
            debug_assert!(in_flight.is_none(), "one statement in flight per link");
            *in_flight = Some(InFlight { id, purpose, deadline: later(now, STATEMENT_DEADLINE) });
        }
    }

    /// Whether the statement with this id is the one in flight.
    pub(crate) fn is_in_flight(&self, id: StatementId) -> bool {
        matches!(&self.status, Status::Up { in_flight: Some(it), .. } if it.id == id)
    }

    /// What the statement with this id was for, if it is the one in flight.
    pub(crate) fn take(&mut self, id: StatementId) -> Option<P> {
        match &mut self.status {
            Status::Up { in_flight, .. } => in_flight.take_if(|it| it.id == id).map(|it| it.purpose),
            _ => None,
        }
    }

    /// Whether something has taken longer than it may.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        match &self.status {
            Status::Connecting { deadline } => *deadline <= now,
            Status::Up { in_flight: Some(it), .. } => it.deadline <= now,
            _ => false,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.status {
            Status::Down { retry_at } => Some(*retry_at),
            Status::Connecting { deadline } => Some(*deadline),
            Status::Up { in_flight, paused_until } => sooner(in_flight.as_ref().map(|it| it.deadline), *paused_until),
        }
    }

    /// What the statement in flight is for.
    pub(crate) fn purpose(&self) -> Option<&P> {
        match &self.status {
            Status::Up { in_flight: Some(it), .. } => Some(&it.purpose),
            _ => None,
        }
    }
}
