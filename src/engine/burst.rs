//! Runs that were claimed together and are all short share an exchange, too, when they end.
//!
//! The first of them end while the last are still being started. If those went to the server at once, each claim of many
//! jobs would be followed by an exchange for a few and one for the rest, which costs more than one for all.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use super::Engine;
use crate::time::later;

/// For which part of the time that the claim took its results are waited for, counted from its answer.
const SHARE: u32 = 4;

/// The longest wait, after a claim that took long for reasons of its own.
const LONGEST: Duration = Duration::from_millis(5);

/// The runs of the latest claim. None, or one that is alone, holds nothing back.
#[derive(Debug, Default)]
pub(super) struct Burst {
    /// When they were handed out, which tells them from others.
    started_at: Option<Instant>,
    going: usize,
    has_ended: bool,
    until: Option<Instant>,
}

impl Burst {
    /// A claim was answered that was sent at `sent`, and so many of its jobs are runs now.
    pub(super) fn begins(&mut self, sent: Instant, now: Instant, going: usize) {
        let patience = (now.saturating_duration_since(sent) / SHARE).min(LONGEST);
        *self = Self { started_at: Some(now), going, has_ended: false, until: Some(later(now, patience)) };
    }

    /// A run has ended that was started at `started_at`.
    pub(super) fn ended(&mut self, started_at: Instant) {
        if self.started_at == Some(started_at) {
            self.going = self.going.saturating_sub(1);
            self.has_ended = true;
        }
    }

    /// Until when results are held back; nothing, if they are not.
    fn is_ending(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| self.has_ended && self.going > 0 && now < *until)
    }
}

impl Engine {
    /// Until when results are not sent, for others that are as short will be there in a moment.
    pub(super) fn gathers_until(&self, now: Instant) -> Option<Instant> {
        self.burst.is_ending(now).filter(|_| self.is_running())
    }
}
