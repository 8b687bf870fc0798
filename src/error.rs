//! The one error of the public surface: what kind, what was being done, why, and what to do now.
#![deny(clippy::disallowed_methods)]

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::Enqueued;

/// What went wrong, so that a program can decide what to do.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A setting is malformed, out of its bounds, or contradicts another one.
    Config,
    /// No server answered in time, or it refuses work for now (starting, stopping, out of connections).
    Unavailable,
    /// The server does not accept the user or its password.
    Authentication,
    /// The connection cannot be encrypted as the settings want it: the server has no TLS, its certificate is not accepted
    /// (not signed by a trusted authority, for another name, expired), or it refuses ours.
    Tls,
    /// The user may not do this in the database.
    Permission,
    /// The server takes no writes: a standby, or a primary about to be one.
    ReadOnly,
    /// The schema or its tables are not there.
    SchemaMissing,
    /// The schema lacks a migration that this version needs.
    SchemaTooOld,
    /// The schema was changed by a later version in a way that this one cannot work with.
    SchemaTooNew,
    /// What is in the schema does not fit its record of migrations: tables, columns or functions of ours are missing, or
    /// others have their names. Migrating does not mend that.
    SchemaDamaged,
    /// The worker has no registered task, so there is nothing it could claim.
    NoKinds,
    /// Two registered tasks have the same `KIND`.
    DuplicateKind,
    /// The job was not enqueued, for certain: the server could not take it in time.
    NotEnqueued,
    /// The connection was lost before the answer came: what was asked for, such as enqueueing a job, may or may not have
    /// been done.
    Unknown,
    /// Of many jobs some were enqueued, or may have been, and then something failed: [`Error::partial`] says how far it
    /// went, and the [`source`](StdError::source) is the failure.
    Partly,
    /// Nothing was enqueued, because the calls that wait for the server hold as much memory as they may.
    Overloaded,
    /// The job is not the run's any more: its lease ran out, and somebody else may have it.
    ClaimLost,
    /// The run has completed its job before: the transaction of an earlier `complete_in` was committed.
    AlreadyCompleted,
    /// Another transaction holds or has changed what this one needs. Roll back, and do the whole transaction again.
    Conflict,
    /// The caller's transaction is not READ COMMITTED, and the call cannot do its work at another isolation level.
    Isolation,
    /// A payload, carry or attachment cannot be written as JSON, has another shape, or is too large.
    Payload,
    /// A dedup key is empty, longer than 200 bytes, or has a control character.
    DedupKey,
    /// `Task::merge` panicked, or what it returned did when it was used.
    Merge,
    /// The job was not enqueued, for certain: others had its dedup key, or changed the pending job, each time it was
    /// tried; or `Task::merge` took longer than the call may.
    Contended,
    /// The database refused the statement.
    Database,
    /// The spawner does not run the futures that it is given.
    Spawner,
    /// A defect in venturi.
    Internal,
}

/// Why a call of this crate failed.
///
/// [`kind`](Self::kind) is for programs, [`Display`](fmt::Display) for people: it says what was being done, why it
/// failed and, where that helps, what to do. When the server refused a statement,
/// [`source`](StdError::source) is the `tokio_postgres::Error` (the same type as `postgres::Error`), whose `code()`
/// is the SQLSTATE.
///
/// ```
/// use venturi::{Database, ErrorKind};
///
/// let error = Database::new("host=localhost port=many").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert!(!error.is_retryable());
/// ```
pub struct Error {
    // One pointer, so that every `Result` of the crate stays small.
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
    partial: Option<Partial>,
}

/// How far a call that enqueues many came before it failed.
///
/// With these, and the tasks in the same order, a caller can go on where the call stopped: leave out the first
/// `enqueued.len()` tasks; the next `in_doubt` ones only if running them twice is harmless; the rest was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partial {
    /// What the first tasks became, in their order. They are stored.
    pub enqueued: Vec<Enqueued>,
    /// How many tasks after them may or may not be stored: because the connection ended before the answer came, and then
    /// all of them or none; or because some of their batch have dedup keys, which are stored each for itself, apart from
    /// those without one.
    pub in_doubt: usize,
}

enum Source {
    Any(Box<dyn StdError + Send + Sync>),
    /// Apart from `Any`, because an `Arc` in a box would hide the type from `downcast_ref`.
    Postgres(Arc<tokio_postgres::Error>),
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: None, partial: None }) }
    }

    pub(crate) fn with_source(mut self, source: Box<dyn StdError + Send + Sync>) -> Self {
        self.inner.source = Some(Source::Any(source));
        self
    }

    pub(crate) fn with_postgres(mut self, source: Arc<tokio_postgres::Error>) -> Self {
        self.inner.source = Some(Source::Postgres(source));
        self
    }

    /// The failure of a call that enqueues many, after it came so far.
    pub(crate) fn after(mut self, partial: Partial) -> Self {
        let how_far = match (partial.enqueued.len(), partial.in_doubt) {
            (0, 0) => None,
            (0, some) => Some(format!("some of the first {some} jobs may be enqueued, none after them is")),
            (all, 0) => Some(format!("the first {all} jobs are enqueued, none after them is")),
            (all, some) => Some(format!("the first {all} jobs are enqueued, some of the next {some} may be")),
        };
        if let Some(how_far) = how_far {
            // These say by themselves that nobody knows, and why.
            let unknown = matches!(self.kind(), ErrorKind::Unknown | ErrorKind::Internal);
            let kind = if partial.enqueued.is_empty() && unknown { self.kind() } else { ErrorKind::Partly };
            self = Self::new(kind, format!("{how_far}: {self}")).with_source(self.into());
        }
        self.inner.partial = Some(partial);
        self
    }

    /// How far a call that enqueues many came, whatever its [`kind`](Self::kind) is; `None` for any other call.
    #[must_use]
    pub fn partial(&self) -> Option<&Partial> {
        self.inner.partial.as_ref()
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the same call, unchanged, may succeed later and is safe to repeat.
    ///
    /// `false` for [`ErrorKind::Unknown`]: repeating an enqueue that did happen makes a second job, unless it has a
    /// dedup key.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Unavailable
                | ErrorKind::ReadOnly
                | ErrorKind::NotEnqueued
                | ErrorKind::Overloaded
                | ErrorKind::Contended
        )
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.inner.kind).field("message", &self.inner.message);
        match &self.inner.source {
            Some(Source::Any(source)) => debug.field("source", source),
            Some(Source::Postgres(source)) => debug.field("source", source),
            None => &mut debug,
        }
        .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.inner.source.as_ref()? {
            Source::Any(source) => Some(&**source),
            Source::Postgres(source) => Some(&**source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::mem::size_of;

    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn an_error_shows_its_message_and_keeps_its_source() {
        let error = Error::new(ErrorKind::Config, "reading x: no; do y").with_source(io::Error::other("deep").into());
        assert_eq!(error.to_string(), "reading x: no; do y");
        assert_eq!(error.source().unwrap().to_string(), "deep");
        assert!(error.source().unwrap().downcast_ref::<io::Error>().is_some());
        assert!(format!("{error:?}").contains("deep"));
    }

    #[test]
    fn the_postgres_error_behind_an_error_can_be_reached() {
        let inner = "host=".parse::<tokio_postgres::Config>().unwrap_err();
        let error = Error::new(ErrorKind::Database, "x").with_postgres(Arc::new(inner));
        assert!(error.source().unwrap().downcast_ref::<tokio_postgres::Error>().is_some());
    }

    #[test]
    fn what_may_be_stored_is_never_called_retryable_nor_not_enqueued() {
        let one = Enqueued { id: crate::JobId(1), effect: crate::Effect::Inserted };
        let failed = |kind, stored, in_doubt| {
            Error::new(kind, "not enqueued").after(Partial { enqueued: vec![one; stored], in_doubt })
        };
        for kind in [ErrorKind::NotEnqueued, ErrorKind::Contended, ErrorKind::Merge, ErrorKind::Overloaded] {
            for (stored, in_doubt, says) in [
                (0, 5, "some of the first 5 jobs may be enqueued, none after them is: "),
                (2, 0, "the first 2 jobs are enqueued, none after them is: "),
                (2, 5, "the first 2 jobs are enqueued, some of the next 5 may be: "),
            ] {
                let error = failed(kind, stored, in_doubt);
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Partly, false));
                assert!(error.to_string().starts_with(says), "{error}");
                assert_eq!(error.source().unwrap().downcast_ref::<Error>().unwrap().kind(), kind);
            }
            assert_eq!(failed(kind, 0, 0).kind(), kind);
        }
        assert_eq!(failed(ErrorKind::Unknown, 0, 5).kind(), ErrorKind::Unknown);
        assert_eq!(failed(ErrorKind::Unknown, 1, 5).kind(), ErrorKind::Partly);
    }

    #[test]
    fn only_what_surely_did_not_happen_is_retryable() {
        let retryable = |kind| Error::new(kind, "").is_retryable();
        assert!(retryable(ErrorKind::Unavailable));
        assert!(retryable(ErrorKind::NotEnqueued));
        assert!(retryable(ErrorKind::ReadOnly));
        assert!(retryable(ErrorKind::Overloaded));
        assert!(retryable(ErrorKind::Contended));
        assert!(!retryable(ErrorKind::Partly));
        assert!(!retryable(ErrorKind::Unknown));
        assert!(!retryable(ErrorKind::Database));
    }
}
