//! Statements for a client of the caller's, inside whatever transaction it is in.
//!
//! They go with the types of their parameters: in one trip, and without a prepared statement left behind, which a
//! connection pooler would not know of.
#![deny(clippy::disallowed_methods)]

use tokio_postgres::Row;

use super::keyed::{self, EnqueueKeyed};
use super::request::{Complete, Enqueue};
use super::{Param, ReadError, Reply, Text, reply};

#[derive(Debug)]
pub(crate) enum Inside {
    Complete(Complete),
    Enqueue(Enqueue),
    EnqueueKeyed(EnqueueKeyed),
    LockTimeout { from: &'static str, to: &'static str },
}

impl Inside {
    pub(crate) fn text(&self) -> Text {
        match self {
            Self::Complete(_) => Text::Complete,
            Self::Enqueue(_) => Text::Enqueue,
            Self::EnqueueKeyed(_) => Text::EnqueueKeyed,
            Self::LockTimeout { .. } => Text::LockTimeout,
        }
    }

    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        match self {
            Self::Complete(complete) => complete.params(),
            Self::Enqueue(enqueue) => enqueue.params(),
            Self::EnqueueKeyed(keyed) => keyed.params(),
            Self::LockTimeout { from, to } => vec![Box::new(*from), Box::new(*to)],
        }
    }

    pub(crate) fn read(&self, rows: &[Row]) -> Result<Reply, ReadError> {
        match self {
            Self::Complete(_) => reply::completed(rows),
            Self::Enqueue(enqueue) => reply::enqueued(enqueue.len(), rows),
            Self::EnqueueKeyed(asked) => keyed::answers(asked.rows.len(), rows),
            Self::LockTimeout { .. } => Ok(Reply::Changed(!rows.is_empty())),
        }
    }
}
