//! What a failed statement or connection means: try it again, connect again, or give up.
#![deny(clippy::disallowed_methods)]

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{Error, ErrorKind};
use crate::statement::ReadError;
use crate::text;

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The connection is gone, or in a state that only a new one mends.
    Link,
    /// The server refuses for now; the same statement may pass later on the same connection.
    Transient,
    /// The server refuses what this statement contains.
    Statement,
    /// No waiting mends it, if it happens at the start.
    Fatal(ErrorKind),
}

/// Whether the statement took effect although it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKnown {
    /// It did not.
    NotDone,
    /// It may have been committed: the answer was lost, not the statement.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) outcome: OutcomeKnown,
    /// The server's words and the SQLSTATE, without the values that its details may quote.
    pub(crate) message: String,
    pub(crate) code: Option<SqlState>,
    pub(crate) source: Option<Arc<tokio_postgres::Error>>,
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::malformed(error.to_string())
    }
}

impl Fault {
    pub(crate) fn from_postgres(error: impl Into<Arc<tokio_postgres::Error>>) -> Self {
        let source = error.into();
        let (kind, outcome, message, code) = match source.as_db_error() {
            Some(refusal) => {
                let (kind, outcome) = refused(refusal);
                let (said, code) = (refusal.message(), refusal.code());
                let message = format!("{said} (SQLSTATE {}){}", code.code(), pooler_hint(code, said));
                let code = if is_standby(refusal) { SqlState::READ_ONLY_SQL_TRANSACTION } else { code.clone() };
                (kind, outcome, message, Some(code))
            }
            None if is_about_tls(&source) => (handshake(&source), OutcomeKnown::NotDone, in_tls(&source), None),
            None => {
                let (kind, outcome) = broken(&source.to_string());
                (kind, outcome, text::chain(&*source), None)
            }
        };
        Self { kind, outcome, message, code, source: Some(source) }
    }

    /// The connection failed after the statement may have been sent.
    pub(crate) fn link(message: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Link,
            outcome: OutcomeKnown::Unknown,
            message: message.into(),
            code: None,
            source: None,
        }
    }

    /// The client panicked while it connected: of what the system refused it, or in the user's TLS settings. It may pass.
    pub(crate) fn client_panicked(panic: &str) -> Self {
        Self::link(format!("the client {panic}")).not_sent()
    }

    /// The settings cannot be followed, so that nothing was tried.
    pub(crate) fn of_settings(error: &Error) -> Self {
        Self { kind: FaultKind::Fatal(error.kind()), ..Self::link(error.to_string()).not_sent() }
    }

    /// No answer came in time, so the connection is given up.
    pub(crate) fn deadline() -> Self {
        Self::link("the server did not answer in time")
    }

    /// The answer makes no sense. The connection is given up, since a new one prepares its statements anew and asks
    /// for what this one may have missed.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::link(message)
    }

    /// The server is of no use to a queue; another one of the same name may be, or the same one later.
    pub(crate) fn takes_no_writes() -> Self {
        let fault = Self::link("the server takes no writes (it is a standby, or about to be one)").not_sent();
        Self { code: Some(SqlState::READ_ONLY_SQL_TRANSACTION), ..fault }
    }

    /// What stands for several failed attempts: a refusal that no waiting mends says more than any other answer of a
    /// server, and that more than no answer. The message tells them all.
    pub(crate) fn weightiest(faults: Vec<Self>) -> Self {
        let weight = |fault: &Self| (matches!(fault.kind, FaultKind::Fatal(_)), fault.code.is_some());
        let message = faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; ");
        let fault = faults.into_iter().max_by_key(weight);
        Self { message, ..fault.unwrap_or_else(|| Self::link("no address is known").not_sent()) }
    }

    /// The same fault of reading which migrations were run: a table of that name without its columns is not ours.
    pub(crate) fn of_record(&self) -> Self {
        let fault = self.clone();
        if self.code != Some(SqlState::UNDEFINED_COLUMN) {
            return fault;
        }
        Self { kind: FaultKind::Fatal(ErrorKind::SchemaDamaged), ..fault }
    }

    /// The same fault of something that was never sent.
    pub(crate) fn not_sent(mut self) -> Self {
        self.outcome = OutcomeKnown::NotDone;
        self
    }

    /// The fault as the caller sees it; `doing` is what was tried, such as "claiming jobs".
    pub(crate) fn to_error(&self, doing: &str) -> Error {
        let kind = self.error_kind();
        let advice = advice(kind);
        let error = Error::new(kind, format!("{doing}: {}{advice}", self.message));
        match &self.source {
            Some(source) => error.with_postgres(Arc::clone(source)),
            None => error,
        }
    }

    /// The fault of a statement in a transaction of the caller's, as the caller sees it.
    pub(crate) fn to_callers_error(&self, doing: &str) -> Error {
        let Some((kind, advice)) = self.code.as_ref().and_then(callers_kind) else { return self.to_error(doing) };
        let error = Error::new(kind, format!("{doing}: {}; {advice}", self.message));
        match &self.source {
            Some(source) => error.with_postgres(Arc::clone(source)),
            None => error,
        }
    }

    fn error_kind(&self) -> ErrorKind {
        match self.kind {
            FaultKind::Fatal(kind) => kind,
            FaultKind::Link if self.code == Some(SqlState::READ_ONLY_SQL_TRANSACTION) => ErrorKind::ReadOnly,
            FaultKind::Link | FaultKind::Transient => ErrorKind::Unavailable,
            FaultKind::Statement => ErrorKind::Database,
        }
    }
}

fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Authentication => "; check user, password and the server's pg_hba.conf",
        ErrorKind::Config => "; check the database settings",
        ErrorKind::Permission => "; grant the user the rights that docs/security.md lists",
        ErrorKind::ReadOnly => "; connect to the primary",
        ErrorKind::SchemaMissing => {
            "; run `migrate`, which makes what is missing or says why not, and check the schema's name"
        }
        ErrorKind::SchemaDamaged => "; a table `migration` that is not venturi's is in the way: choose another schema",
        ErrorKind::Unavailable => "; it may pass later",
        _ => "",
    }
}

/// What a refusal means to whoever owns the transaction, where that differs from what it means on a connection of ours.
fn callers_kind(code: &SqlState) -> Option<(ErrorKind, &'static str)> {
    match code.code() {
        "40001" | "40P01" | "55P03" => {
            Some((ErrorKind::Conflict, "roll back, and do the whole transaction again; let all take keys in one order"))
        }
        // Raised by the function that enqueues, before it writes anything.
        "VT001" => Some((ErrorKind::Isolation, "use a transaction that is READ COMMITTED")),
        "25P02" => Some((ErrorKind::Database, "an earlier statement of the transaction failed; roll back")),
        "25006" => Some((ErrorKind::ReadOnly, "the transaction takes no writes")),
        "42883" => Some((ErrorKind::SchemaTooOld, "run `migrate` first")),
        // No waiting mends it: it was this transaction that took them, as a rule.
        "53200" => Some((
            ErrorKind::Database,
            "if the transaction enqueues many tasks with dedup keys, each of which takes a lock to its end: enqueue fewer in \
             one, or raise the server's max_locks_per_transaction",
        )),
        _ => None,
    }
}

/// What the server's refusal means.
fn refused(refusal: &DbError) -> (FaultKind, OutcomeKnown) {
    use OutcomeKnown::{NotDone, Unknown};
    let kind = by_pooler(refusal).unwrap_or_else(|| kind_of(refusal.code()));
    if matches!(kind, FaultKind::Fatal(_)) {
        return (kind, NotDone);
    }
    // It ended the session with this message, and may have done so between the commit and the answer.
    let ended = matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    if ended || tells_nothing(refusal.code()) {
        return (FaultKind::Link, if says_it_never_began(refusal.code()) { NotDone } else { Unknown });
    }
    (if is_stale_plan(refusal) || is_standby(refusal) { FaultKind::Link } else { kind }, NotDone)
}

fn kind_of(code: &SqlState) -> FaultKind {
    match code.code() {
        "3D000" => return FaultKind::Fatal(ErrorKind::Config),
        "3F000" | "42P01" => return FaultKind::Fatal(ErrorKind::SchemaMissing),
        "42501" => return FaultKind::Fatal(ErrorKind::Permission),
        // Dropped with the connection that had prepared it; or a pooler has mixed up whose it is.
        "26000" | "42P05" => return FaultKind::Link,
        // Cancelled by somebody, or by `statement_timeout`.
        "57014" | "55P03" | "55006" => return FaultKind::Transient,
        _ => {}
    }
    match class(code) {
        "28" => FaultKind::Fatal(ErrorKind::Authentication),
        // The last ones leave the session in a transaction that is not ours: read-only, failed, or none.
        "08" | "57" | "25" | "2D" => FaultKind::Link,
        "40" | "53" | "58" => FaultKind::Transient,
        _ => FaultKind::Statement,
    }
}

/// The class of an SQLSTATE: its first two characters.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether the code is about the connection, so that it does not say what became of the statement.
fn tells_nothing(code: &SqlState) -> bool {
    class(code) == "08" || matches!(code.code(), "40003" | "57P01" | "57P02" | "57P04" | "57P05")
}

/// Starting up, or full: it was refused before any statement could be sent.
fn says_it_never_began(code: &SqlState) -> bool {
    matches!(code.code(), "57P03" | "53300" | "08001" | "08004")
}

/// A statement prepared before the tables changed; a new connection prepares it anew.
fn is_stale_plan(refusal: &DbError) -> bool {
    *refusal.code() == SqlState::FEATURE_NOT_SUPPORTED && refusal.message().contains("cached plan")
}

/// A transaction that is to write was begun where none can.
fn is_standby(refusal: &DbError) -> bool {
    *refusal.code() == SqlState::FEATURE_NOT_SUPPORTED && refusal.message().contains("read-write mode during recovery")
}

/// PgBouncer refuses a log-in with one code, whatever the reason.
fn by_pooler(refusal: &DbError) -> Option<FaultKind> {
    if *refusal.code() != SqlState::PROTOCOL_VIOLATION {
        return None;
    }
    let says = |words: &str| refusal.message().contains(words);
    if says("unsupported startup parameter") || says("no such database") {
        Some(FaultKind::Fatal(ErrorKind::Config))
    } else if says("password authentication failed") || says("no such user") {
        Some(FaultKind::Fatal(ErrorKind::Authentication))
    } else {
        None
    }
}

/// What to do when it was a pooler that came between.
fn pooler_hint(code: &SqlState, said: &str) -> &'static str {
    match code.code() {
        "26000" | "42P05" => {
            "; if there is a pooler in transaction mode between here and the server, set `Database::pooled(true)`"
        }
        "08P01" if said.contains("unsupported startup parameter") => {
            "; leave that option out of the connection string, or have the pooler ignore it"
        }
        _ => "",
    }
}

/// What an error of the client itself means. Its kinds are private; their texts are not.
fn broken(text: &str) -> (FaultKind, OutcomeKnown) {
    use OutcomeKnown::{NotDone, Unknown};
    let is = |start: &str| text.starts_with(start);
    if is("error serializing") || is("error encoding") || is("expected ") {
        (FaultKind::Statement, NotDone)
    } else if is("authentication error") {
        (FaultKind::Fatal(ErrorKind::Authentication), NotDone)
    } else if is("invalid configuration") || is("invalid connection string") {
        (FaultKind::Fatal(ErrorKind::Config), NotDone)
    } else if is("error connecting") {
        (FaultKind::Link, NotDone)
    } else {
        (FaultKind::Link, Unknown)
    }
}

fn is_about_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().starts_with("error performing TLS")
}

/// A handshake that broke off may pass another time; one in which a side refused the other will not.
fn handshake(error: &tokio_postgres::Error) -> FaultKind {
    use io::ErrorKind::{InvalidData, InvalidInput};
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
        None | Some(InvalidData | InvalidInput) => FaultKind::Fatal(ErrorKind::Tls),
        Some(_) => FaultKind::Link,
    }
}

fn in_tls(error: &tokio_postgres::Error) -> String {
    let text = text::chain(error);
    let hint = if text.contains("does not support TLS") {
        "; turn it on there (ssl = on), or allow plain text with sslmode=prefer"
    } else {
        ""
    };
    text + hint
}

#[cfg(test)]
mod tests;
