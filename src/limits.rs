//! The sizes that stored text may have, and why.
#![deny(clippy::disallowed_methods)]

/// Bytes of a payload's JSON text, unless a queue is told otherwise. Larger data belongs in a store of its own, named by the payload.
pub(crate) const MAX_PAYLOAD: usize = 1_000_000;

/// Bytes of a journal note; an error chain that says what happened fits, a dumped response does not.
pub(crate) const MAX_NOTE: usize = 8_000;

/// Bytes of an attachment's JSON text.
pub(crate) const MAX_ATTACHMENT: usize = 64_000;

/// Journal entries that a handler gets at once.
pub(crate) const MAX_HISTORY: u32 = 1_000;

/// Bytes of a kind: it stands in every row, in an index, and in every notification.
pub(crate) const MAX_KIND: usize = 100;

/// Bytes of a dedup key: it stands in the row and in an index.
pub(crate) const MAX_KEY: usize = 200;

/// Bytes of a trace context: a traceparent has 55, and what travels with one is advised to stay below this.
pub(crate) const MAX_TRACE: usize = 512;

/// The longest delay that is stored. PostgreSQL's timestamps would take more, but a sum with `now()` must never be
/// out of range, or a settlement could never be accepted.
pub(crate) const MAX_DELAY: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 86_400);

/// The latest instant that is stored: the end of the year 9999, in seconds since 1970. PostgreSQL's timestamps would take
/// more, but sums and differences must never be out of range.
pub(crate) const MAX_DUE: std::time::Duration = std::time::Duration::from_secs(253_402_300_799);

/// Jobs on a page that says nothing of its length.
pub(crate) const DEFAULT_PAGE: u32 = 100;

/// Jobs or journal entries on a page; with a payload of 1 kB each that is some 1 MB.
pub(crate) const MAX_PAGE: u32 = 1_000;
