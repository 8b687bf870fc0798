//! What happened to a job, run by run.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::job::Json;
use crate::job_info::decoded;
use crate::statement::Ending;

/// One entry of a job's journal: how a run ended, or what was done to the job between runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalEntry {
    /// Which run it tells of: [`Context::run_count`](crate::Context::run_count) of that run.
    pub run_count: u32,
    /// When it was written, by the database's clock.
    pub at: SystemTime,
    /// What happened.
    pub event: JournalEvent,
    /// Which worker had the job.
    pub claimed_by: Option<String>,
    /// What the handler, or venturi, said about it.
    pub note: Option<String>,
    pub(crate) attachment: Option<Json>,
}

impl JournalEntry {
    /// What the run attached; `None` when it attached nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`](crate::ErrorKind::Payload) when what is stored is not a `T`.
    pub fn attachment<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        decoded("attachment", self.attachment.as_ref())
    }
}

/// What a journal entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalEvent {
    /// The job was done.
    Completed,
    /// The job went to dead.
    Dead,
    /// The job was cancelled.
    Cancelled,
    /// The run failed and the job was put back.
    Retried,
    /// The run paused.
    Paused,
    /// The job was given back by a worker that stopped.
    Released,
    /// The lease ran out: the worker is presumed dead.
    StaleRecovered,
    /// Another enqueue was merged into the job.
    Merged,
    /// The job was put back by hand after it had ended.
    Requeued,
}

impl JournalEvent {
    /// The word that the view `journal_entries` shows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Retried => "retried",
            Self::Paused => "paused",
            Self::Released => "released",
            Self::StaleRecovered => "stale-recovered",
            Self::Merged => "merged",
            Self::Requeued => "requeued",
        }
    }

    /// The event that ended a job, by the word of the view `jobs`.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let ends = [Self::Completed, Self::Dead, Self::Cancelled, Self::StaleRecovered];
        ends.into_iter().find(|event| event.as_str() == word)
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Some(match code {
            3 => Self::Completed,
            4 => Self::Dead,
            5 => Self::Cancelled,
            6 => Self::Retried,
            7 => Self::Paused,
            8 => Self::Released,
            9 => Self::StaleRecovered,
            10 => Self::Merged,
            11 => Self::Requeued,
            _ => return None,
        })
    }
}

impl From<Ending> for JournalEvent {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Completed => Self::Completed,
            Ending::Dead => Self::Dead,
            Ending::Cancelled => Self::Cancelled,
            Ending::Retried => Self::Retried,
            Ending::Paused => Self::Paused,
            Ending::Released => Self::Released,
        }
    }
}

impl fmt::Display for JournalEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
