//! What the statements count on, whatever the role and the database have set: said once on a connection of our own, and
//! in each transaction on one that is shared.
#![deny(clippy::disallowed_methods)]

use std::sync::LazyLock;

use tokio_postgres::error::SqlState;

use crate::fault::Fault;

/// What each own connection sends first, as one simple query.
///
/// The statements are written for one plan, which holds on an empty, never analysed table as well as on a large one;
/// and a role or a database may carry defaults that would break the queue (isolation, read-only, time-outs). All of
/// these settings exist in PostgreSQL 14 to 18, and every role may set them. The time-out comes first, since it is the
/// role's own that bounds the statement which lifts it.
pub(crate) const SESSION: &str = include_str!("../sql/parts/session.sql");

/// How often the settings are sent before the server's refusal stands.
///
/// A role's own `statement_timeout` may be shorter than a busy machine takes to begin on the first of them.
#[derive(Debug)]
pub(crate) struct Attempts {
    left: u8,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self { left: 5 }
    }

    /// Whether to send them again after this fault: only if they were cancelled.
    pub(crate) fn may_go_on(&mut self, fault: &Fault) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0 && fault.code == Some(SqlState::QUERY_CANCELED)
    }
}

/// Asked of every server after [`SESSION`], which undoes a role's own default of read-only transactions: a queue has no
/// use for a server that takes no writes, whatever the settings want.
pub(crate) const IS_READ_ONLY: &str = "SHOW transaction_read_only";

/// The settings for one transaction. It fails on a server that takes no writes.
static SHARED: LazyLock<String> = LazyLock::new(|| {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\n{}", SESSION.replace("SET ", "SET LOCAL "))
});

/// The first thing said over a connection that a pooler lends for each transaction: whether it is of use.
static TRIED: LazyLock<String> = LazyLock::new(|| format!("{}COMMIT", *SHARED));

/// How a transaction begins.
pub(crate) fn begin(pooled: bool) -> &'static str {
    if pooled { &SHARED } else { "BEGIN" }
}

/// What finds out whether a pooler's server can be used, instead of [`SESSION`] and [`IS_READ_ONLY`].
pub(crate) fn trial() -> &'static str {
    &TRIED
}
