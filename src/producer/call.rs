//! What callers want of a queue, and what they get.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::statement::NewJob;

use super::RecoveredStale;

/// Names a call.
pub(crate) type CallId = u64;

/// What a caller wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// To know whether the queue can be used.
    Probe,
    /// These rows inserted.
    Enqueue(Vec<NewJob>),
    /// Claims whose leases ran out put back.
    RecoverStale,
}

/// What a caller gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Ready,
    /// The ids in the order of the rows.
    Enqueued(Vec<i64>),
    Recovered(RecoveredStale),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) deadline: Instant,
}

/// A call whose rows are being inserted.
#[derive(Debug)]
pub(super) struct Insert {
    pub(super) id: CallId,
    pub(super) jobs: Vec<NewJob>,
    pub(super) deadline: Instant,
}

/// What to tell a caller whose request could not be sent in time.
pub(super) fn in_vain(request: &Request) -> Error {
    let why = "the server could not be reached in time; try again later";
    match request {
        Request::Enqueue(_) => Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}")),
        Request::Probe | Request::RecoverStale => Error::new(ErrorKind::Unavailable, why),
    }
}
