//! A durable job queue on PostgreSQL.
//!
//! Work is described by a [`Task`], stored as a row, and run by a worker that claims the row under a lease. There are
//! two front-ends with the same names over one shared core: `venturi::blocking` runs handlers on threads,
//! `venturi::r#async` runs them as futures on whatever executor the application has. Neither is on by default; enable
//! the feature `blocking`, the feature `async`, or both. The feature `tls` adds encrypted connections to either, `metrics`
//! and `tracing` tell what happens, and `testing` helps with tests.
//!
//! Delivery is at least once: a job whose worker dies is run again after its lease has run out, so handlers must be
//! idempotent. The README lists what is guaranteed and what is not.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "blocking", feature = "async")),
    allow(dead_code, unused_imports, reason = "the core is driven by a front-end; alone it only has to compile")
)]
#![cfg_attr(
    not(all(feature = "blocking", feature = "async")),
    allow(rustdoc::broken_intra_doc_links, reason = "a page may name the front-end that is switched off")
)]

mod answer;
mod ask;
mod backoff;
mod cancellation;
mod config;
mod context;
mod control;
mod cursor;
mod database;
mod dedup_key;
mod departure;
mod doctor;
mod engine;
mod errand;
mod error;
mod fault;
mod filter;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod interest;
mod inventory;
mod job;
mod job_info;
mod journal;
mod knobs;
mod limits;
mod link;
mod merge;
#[cfg(feature = "metrics")]
mod metrics;
mod middleware;
mod migration;
mod notice;
mod notification;
mod observer;
mod offer;
mod outcome;
mod panic_boundary;
mod prepared;
mod producer;
mod raw_job;
mod reading;
mod recovery;
mod registry;
mod report;
mod rotation;
mod run;
mod statement;
mod stats;
#[cfg(feature = "testing")]
mod stint;
mod submit;
mod sync;
mod task;
mod text;
mod time;
#[cfg(feature = "tracing")]
mod traces;
mod visit;

#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
#[path = "../async/mod.rs"]
pub mod r#async;

#[cfg(any(feature = "blocking", feature = "async"))]
#[path = "../threads/mod.rs"]
mod threads;

#[cfg(any(feature = "blocking", feature = "async"))]
#[path = "../tls/mod.rs"]
mod tls;

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
#[path = "../blocking/mod.rs"]
pub mod blocking;

#[cfg(all(feature = "testing", any(feature = "blocking", feature = "async")))]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
#[path = "../testing/mod.rs"]
pub mod testing;

pub use answer::Answer;
pub use backoff::Backoff;
pub use cancellation::{CancelReason, CancellationToken, Cancelled};
pub use config::{DecodePolicy, PanicPolicy};
pub use context::Context;
pub use control::{CancelOutcome, CancelledAll, Cleaned, RequeueOutcome, RequeuedAll};
pub use cursor::Cursor;
pub use database::Database;
pub use dedup_key::DedupKey;
pub use departure::Hold;
pub use doctor::{Finding, Severity};
pub use error::{Error, ErrorKind, Partial};
pub use filter::{Cleanup, JobFilter, JobPage, JournalPage};
pub use job::JobId;
pub use job_info::{JobInfo, JobStatus};
pub use journal::{JournalEntry, JournalEvent};
pub use merge::{Merge, Pending};
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use metrics::Metrics;
pub use middleware::RunInfo;
pub use migration::{MigrationStep, PendingMigrations};
pub use observer::{Event, Observed, Observer};
pub use outcome::{Outcome, TaskError};
pub use prepared::Prepared;
pub use producer::RecoveredStale;
pub use raw_job::{OnDuplicate, RawJob};
pub use report::{LeftClaimed, LeftReason, ShutdownReport};
pub use stats::{KindStats, PausedKind, Stats, WorkerClaims};
pub use submit::{Effect, Enqueued, Submit};
pub use task::{Priority, Task};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use traces::Tracing;

#[cfg(shuttle)]
#[path = "../tests/interleavings/mod.rs"]
mod interleavings;

/// The README's programs compile.
#[cfg(all(doctest, feature = "blocking", feature = "async"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The pages' programs compile.
#[cfg(all(doctest, feature = "blocking", feature = "async"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

#[cfg(all(doctest, feature = "blocking", feature = "async", feature = "testing"))]
#[doc = include_str!("../docs/testing.md")]
struct Testing;

#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../docs/tls.md")]
struct Tls;

#[cfg(doctest)]
#[doc = include_str!("../docs/pgbouncer.md")]
struct Poolers;
