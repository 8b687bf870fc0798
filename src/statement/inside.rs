//! Statements for a client of the caller's, inside whatever transaction it is in.
//!
//! They go with the types of their parameters: in one trip, and without a prepared statement left behind, which a
//! connection pooler would not know of.
#![deny(clippy::disallowed_methods)]

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::request::Complete;
use super::{Param, ReadError, Reply, Text, reply};

#[derive(Debug)]
pub(crate) enum Inside {
    Complete(Complete),
}

impl Inside {
    pub(crate) fn text(&self) -> Text {
        match self {
            Self::Complete(_) => Text::Complete,
        }
    }

    pub(crate) fn params(&self) -> Vec<(Param<'_>, Type)> {
        let (params, types) = match self {
            Self::Complete(complete) => (complete.params(), Complete::TYPES),
        };
        debug_assert_eq!(params.len(), types.len(), "each parameter has its type");
        params.into_iter().zip(types.iter().cloned()).collect()
    }

    pub(crate) fn read(&self, rows: &[Row]) -> Result<Reply, ReadError> {
        match self {
            Self::Complete(_) => reply::completed(rows),
        }
    }
}
