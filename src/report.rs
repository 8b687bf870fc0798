//! What a run tells the engine when it ends, and what a worker tells its caller when it stops.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::JobId;
use crate::job::Json;

/// How a run ended, before the engine has decided what becomes of its row.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    /// The carry to store, when the verdict stores one.
    pub(crate) carry: Option<Json>,
    pub(crate) attachment: Option<Json>,
    /// What could not be stored as the handler wanted it.
    pub(crate) degraded: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Completed {
        note: Option<String>,
    },
    Paused {
        resume_in: Duration,
        note: Option<String>,
    },
    Failed {
        message: String,
        permanent: bool,
    },
    /// The text says "panicked: …".
    Panicked(String),
    /// The handler says that it has completed the job in a transaction of its own.
    CompletedItself,
    /// Payload or carry could not be decoded.
    Undecodable(String),
    /// The future was dropped because the engine asked for it.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only a future can be dropped"))]
    Aborted,
    /// The run was taken back before its handler started.
    NotStarted,
    /// The spawner threw the run away.
    Discarded,
}

impl Report {
    pub(crate) fn new(verdict: Verdict) -> Self {
        Self { verdict, carry: None, attachment: None, degraded: None }
    }
}

/// What became of a worker's jobs, from its start to its end.
///
/// A worker stops like this, once its shutdown token is cancelled:
///
/// ```text
/// RUNNING --cancelled--> DRAINING --all handlers ended--> STOPPED
///                           |
///                           +--shutdown_timeout--> FORCED
///                                |
///                                +-- futures: dropped, then their jobs are released --> STOPPED
///                                |            what has not stopped after abort_grace is left claimed --> STOPPED
///                                |
///                                +-- not started yet: released, and never started
///                                |
///                                +-- started threads: GRACE --they return--> STOPPED
///                                                       |
///                                                       +--handler_grace--> WAITING_FOR_THREAD
///                                                             --they return--> STOPPED
/// ```
///
/// While it drains, nothing is claimed and every handler is told to wind down. A started blocking handler is never
/// released and waited for without bound; GRACE and WAITING_FOR_THREAD differ only in what the log says. Leases are
/// renewed in every state, until the handler has ended. Without blocking handlers it takes at most `shutdown_timeout`
/// and `abort_grace` together, whatever the server does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Runs whose own result was stored: completed, paused, retried or dead; and those whose jobs were cancelled.
    pub settled: u64,
    /// Runs given back without a failure: the worker was stopping, or their handlers never began.
    pub released: u64,
    /// Runs that were stopped by their time-out and stored as failures, or as cancelled.
    pub timed_out: u64,
    /// Results that came after the time-out was stored or the claim was lost, and were discarded.
    pub late: u64,
    /// Of the settled runs, those whose handlers had completed their jobs with `complete_in` and then ended otherwise:
    /// with an error, a panic or a pause, by a time-out or a shutdown. The job stays completed, and what came later
    /// was discarded.
    pub overruled: u64,
    /// Jobs whose rows may still be claimed by this worker; they are recovered when their leases run out.
    pub left_claimed: Vec<LeftClaimed>,
    /// For a stint: what ran.
    #[cfg(feature = "testing")]
    pub(crate) ran: Vec<crate::stint::Ran>,
}

/// A job that a stopped worker could neither settle nor release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftClaimed {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: &'static str,
    /// Why it was left.
    pub reason: LeftReason,
}

/// Why a stopped worker left a row claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeftReason {
    /// The handler did not stop when it was told to, so its job was not given to anybody else.
    NotStopped,
    /// The handler ended, but the server did not confirm its result in time.
    NotStored,
}
