//! The rows of an answer, taken in while they come: those of a large claim are read by the time the server has committed.
#![deny(clippy::disallowed_methods)]

use tokio_postgres::Row;

use super::Statement;
use super::reply::{self, Claimed, ReadError, Reply};

/// For a statement that is one command.
pub(crate) struct Intake<'a> {
    statement: &'a Statement,
    /// What is read at the end.
    rows: Vec<Row>,
    /// Of a claim, and how many rows come before its own.
    claimed: Option<(usize, Claimed)>,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(statement: &'a Statement) -> Self {
        let claimed = match statement {
            Statement::Exchange { settle, claim: Some(_) } => Some((usize::from(settle.is_some()), Claimed::default())),
            _ => None,
        };
        Self { statement, rows: Vec::new(), claimed }
    }

    pub(crate) fn take(&mut self, row: Row) {
        match &mut self.claimed {
            Some((others, claimed)) if self.rows.len() >= *others => claimed.take(&row),
            _ => self.rows.push(row),
        }
    }

    /// Makes sense of what came, when that is all.
    pub(crate) fn end(self) -> Result<Reply, ReadError> {
        let Some((_, claimed)) = self.claimed else { return self.statement.read(&[self.rows]) };
        let settled = match self.statement {
            Statement::Exchange { settle: Some(_), .. } => reply::accepted(reply::only(&self.rows)?)?,
            _ => Vec::new(),
        };
        Ok(Reply::Exchange { settled, claim: Some(claimed.end()) })
    }
}
