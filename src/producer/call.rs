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
    let (kind, what) = match request {
        Request::Enqueue(_) | Request::Keyed(_) => (ErrorKind::NotEnqueued, "the job was not enqueued: ".to_owned()),
        Request::Inquire(inquiry) => (ErrorKind::Unavailable, format!("{}: ", inquiry.doing())),
        Request::Probe | Request::RecoverStale => (ErrorKind::Unavailable, String::new()),
    };
    unreached(kind, &what, "in time", trouble)
}

/// That nothing came of a request, with what the server or the connection said last.
pub(super) fn unreached(kind: ErrorKind, what: &str, when: &str, trouble: Option<&Fault>) -> Error {
    let why = match trouble {
        Some(Fault { kind: FaultKind::Link, message, .. }) => format!("could not be reached {when} ({message})"),
        Some(Fault { message, .. }) => format!("did not take it {when} ({message})"),
        None => format!("could not be reached {when}"),
    };
    let error = Error::new(kind, format!("{what}the server {why}; try again later"));
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
