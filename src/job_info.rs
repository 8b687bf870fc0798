//! A job as the history shows it: every column of the view `jobs`.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::job::Json;
use crate::journal::JournalEvent;
use crate::panic_boundary::guarded;
use crate::{JobId, Priority};

/// What has become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JobStatus {
    /// It waits for a worker, or for its time.
    Pending,
    /// A worker has it.
    Claimed,
    /// It is done.
    Completed,
    /// It failed for good.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
}

impl JobStatus {
    pub(crate) const ALL: [Self; 5] = [Self::Pending, Self::Claimed, Self::Completed, Self::Dead, Self::Cancelled];

    /// The word that the view `jobs` shows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether jobs of this status have ended.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }

    /// The number that the statements take: the state of a live row, or the status of a finished one.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Pending => 0,
            Self::Claimed => 2,
            Self::Completed => 3,
            Self::Dead => 4,
            Self::Cancelled => 5,
        }
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One job as it was at the instant at which it was read.
///
/// All instants are the database's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its number.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// How urgent it is.
    pub priority: Priority,
    /// What has become of it.
    pub status: JobStatus,
    /// When it was enqueued.
    pub created_at: SystemTime,
    /// When it was or will be due for its latest run.
    pub due_at: SystemTime,
    /// While it is claimed: when other workers may take it back, unless the claim is renewed.
    pub lease_expires_at: Option<SystemTime>,
    /// While it is claimed: when somebody asked for its run to end.
    pub cancel_requested_at: Option<SystemTime>,
    /// When it ended.
    pub finished_at: Option<SystemTime>,
    /// The worker that has it, or had its last run.
    pub claimed_by: Option<String>,
    /// How often it has been started.
    pub run_count: u32,
    /// How often it has failed since it was enqueued or requeued.
    pub failure_count: u32,
    /// Its dedup key.
    pub dedup_key: Option<String>,
    /// What ended it.
    pub outcome: Option<JournalEvent>,
    /// What its last run, or venturi, said about the end.
    pub note: Option<String>,
    /// The context of the trace that it belongs to, as it was given when the job was enqueued
    /// ([`Submit::trace`](crate::Submit::trace)).
    pub trace: Option<String>,
    pub(crate) payload: Option<Json>,
    pub(crate) carry: Option<Json>,
    pub(crate) attachment: Option<Json>,
}

impl JobInfo {
    /// The payload as JSON text, as it was stored; `None` when it was not asked for
    /// ([`JobFilter::without_content`](crate::JobFilter::without_content)).
    #[must_use]
    pub fn payload_json(&self) -> Option<&str> {
        self.payload.as_deref().map(serde_json::value::RawValue::get)
    }

    /// The carry as JSON text; `None` when no run has stored one.
    #[must_use]
    pub fn carry_json(&self) -> Option<&str> {
        self.carry.as_deref().map(serde_json::value::RawValue::get)
    }

    /// What the last run attached, as JSON text.
    #[must_use]
    pub fn attachment_json(&self) -> Option<&str> {
        self.attachment.as_deref().map(serde_json::value::RawValue::get)
    }

    /// The payload as a `T`, which is mostly the [`Task`](crate::Task).
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when what is stored is not a `T`, or was not asked for.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decoded("payload", self.payload.as_ref())?
            .ok_or_else(|| Error::new(ErrorKind::Payload, "reading a payload: it was not asked for, or is not there"))
    }

    /// The carry as a `T`; `None` when no run has stored one.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when what is stored is not a `T`.
    pub fn carry<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        decoded("carry", self.carry.as_ref())
    }

    /// What the last run attached, as a `T`; `None` when it attached nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when what is stored is not a `T`.
    pub fn attachment<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        decoded("attachment", self.attachment.as_ref())
    }
}

/// JSON as the type that the caller expects of it; the type's own code may panic.
pub(crate) fn decoded<T: DeserializeOwned>(what: &str, json: Option<&Json>) -> Result<Option<T>, Error> {
    let Some(json) = json else { return Ok(None) };
    let read = guarded(|| serde_json::from_str(json.get()))
        .map_err(|panic| Error::new(ErrorKind::Payload, format!("reading the {what}: its type {panic}")))?;
    read.map(Some).map_err(|error| {
        let message = format!("reading the {what}: the stored JSON has another shape");
        Error::new(ErrorKind::Payload, message).with_source(error.into())
    })
}
