//! What a statement in flight is for.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use super::settling::Share;
use crate::ask::Ask;
use crate::job::RunId;
use crate::rotation::Floor;

/// What a statement in flight was for, with what is needed to read its answer.
#[derive(Debug)]
pub(super) enum Purpose {
    Check,
    Exchange(Exchange),
    Stale,
    Recover,
    Promote,
    Survey,
    Held,
    Interest,
    Listen,
    Renew(Vec<RunId>),
    /// Of this payload.
    Notify(String),
    /// Only to hear that the link is alive.
    Pulse,
    Ask(RunId, Ask),
    Cancellations(Vec<RunId>),
    Sweep,
}

/// What an exchange carried.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) settled: Vec<RunId>,
    pub(super) share: Share,
    pub(super) claim: Option<Wanted>,
}

/// What a claim asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) want: usize,
    pub(super) floor: Floor,
    /// Only some of the open kinds were asked for.
    pub(super) narrowed: bool,
    /// It did not look behind the marks, so there may be more than it saw.
    pub(super) bounded: bool,
    /// Seconds: how far it looked back for claims that ran out.
    pub(super) look_back: f64,
    pub(super) sent: Instant,
}

impl Purpose {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Exchange(_) => "exchange",
            Self::Stale => "stale",
            Self::Recover => "recover",
            Self::Promote => "promote",
            Self::Survey => "survey",
            Self::Held => "held",
            Self::Interest => "interest",
            Self::Listen => "listen",
            Self::Renew(_) => "renew",
            Self::Notify(_) => "notify",
            Self::Pulse => "pulse",
            Self::Ask(..) => "ask",
            Self::Cancellations(_) => "cancellations",
            Self::Sweep => "cleanup",
        }
    }
}
