//! What callers want of a queue, and what they get.
#![deny(clippy::disallowed_methods)]

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind};
use crate::statement::{Finding, Inquiry, NewJobs, Numbers};

use super::RecoveredStale;
use super::keyed::{KeyedCall, Round};

/// Names a call.
pub(crate) type CallId = u64;

/// What a caller wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// To know whether the queue can be used.
    Probe,
    /// These rows inserted, all or none.
    Enqueue(NewJobs),
    /// A job with a dedup key, one round. These wait apart from the others.
    Keyed(KeyedCall),
    /// Claims whose leases ran out put back.
    RecoverStale,
    /// This asked or done.
    Inquire(Inquiry),
}

/// What a caller gets.
#[derive(Debug)]
pub(crate) enum Response {
    Ready,
    /// The ids in the order of the rows.
    Enqueued(Vec<i64>),
    Keyed(Round),
    Recovered(RecoveredStale),
    Found(Finding),
}

/// Stored JSON has no equality; tests compare what is seen of it.
#[cfg(test)]
impl PartialEq for Response {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) deadline: Instant,
    /// Of many rows: the numbers that were reserved for them.
    pub(super) numbers: Option<Numbers>,
}

/// A call whose rows are being inserted.
#[derive(Debug)]
pub(super) struct Insert {
    pub(super) id: CallId,
    pub(super) jobs: NewJobs,
    pub(super) deadline: Instant,
}

/// What to tell a caller whose request could not be sent in time, or was refused until then: the `trouble`.
pub(super) fn in_vain(request: &Request, trouble: Option<&Fault>) -> Error {
    let why = unreached("in time", trouble);
    let error = match request {
        Request::Enqueue(_) | Request::Keyed(_) => {
            Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}"))
        }
        Request::Inquire(inquiry) => Error::new(ErrorKind::Unavailable, format!("{}: {why}", inquiry.doing())),
        Request::Probe | Request::RecoverStale => Error::new(ErrorKind::Unavailable, why),
    };
    caused(error, trouble)
}

/// Why nothing came of a request, with what the server or the connection said last.
pub(super) fn unreached(when: &str, trouble: Option<&Fault>) -> String {
    match trouble {
        Some(Fault { kind: FaultKind::Link, message, .. }) => {
            format!("the server could not be reached {when} ({message}); try again later")
        }
        Some(Fault { message, .. }) => format!("the server did not take it {when} ({message}); try again later"),
        None => format!("the server could not be reached {when}; try again later"),
    }
}

pub(super) fn caused(error: Error, trouble: Option<&Fault>) -> Error {
    match trouble.and_then(|fault| fault.source.clone()) {
        Some(source) => error.with_postgres(source),
        None => error,
    }
}

/// What to tell a caller whose request is not even taken.
pub(super) fn overloaded(most: usize) -> Error {
    let why = format!("the calls that wait for the server hold more than {most} bytes already; try again later");
    Error::new(ErrorKind::Overloaded, format!("the call was not taken: {why}"))
}
