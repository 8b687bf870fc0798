//! What a handler knows of its job, and what it hands on.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::cancellation::{CancelReason, Cancelled, CancellationToken};
use crate::error::{Error, ErrorKind};
use crate::job::{Json, RunId};
use crate::limits::MAX_ATTACHMENT;
use crate::{JobId, Priority};

/// What a job's row said when it was claimed.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) id: RunId,
    pub(crate) kind: &'static str,
    pub(crate) priority: Priority,
    pub(crate) created_at: SystemTime,
    pub(crate) visible_at: SystemTime,
    pub(crate) failure_count: i32,
}

/// One run of one job, as its handler sees it.
///
/// `C` is the task's carry. Changes to the carry are stored when the run ends with a pause or a retryable error, and
/// discarded when it panics, times out or is released.
pub struct Context<C> {
    facts: Facts,
    token: CancellationToken,
    carry: C,
    attachment: Option<Json>,
}

impl<C> Context<C> {
    pub(crate) fn new(facts: Facts, token: CancellationToken, carry: C) -> Self {
        Self { facts, token, carry, attachment: None }
    }

    /// The job's number.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        JobId(self.facts.id.job)
    }

    /// The job's kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.facts.kind
    }

    /// The job's priority.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.facts.priority
    }

    /// How often the job has been started, this run included: 1 for the first run.
    ///
    /// Together with [`job_id`](Self::job_id) it names this run and no other.
    #[must_use]
    pub fn run_count(&self) -> u32 {
        self.facts.id.run.unsigned_abs()
    }

    /// How often the job has failed before this run.
    #[must_use]
    pub fn failure_count(&self) -> u32 {
        self.facts.failure_count.unsigned_abs()
    }

    /// When the job was enqueued, by the database's clock.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.facts.created_at
    }

    /// When the job became due for this run, by the database's clock.
    #[must_use]
    pub fn due_at(&self) -> SystemTime {
        self.facts.visible_at
    }

    /// What the previous run left; the default of its type on the first.
    #[must_use]
    pub fn carry(&self) -> &C {
        &self.carry
    }

    /// What the next run will find, if this one pauses or fails with a retryable error.
    #[must_use]
    pub fn carry_mut(&mut self) -> &mut C {
        &mut self.carry
    }

    /// Stores `value` as JSON beside the journal entry of this run; the last call wins.
    ///
    /// At most 64 kB of JSON text. It is discarded when the run panics, times out or is released.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when the value cannot be written as JSON or is too large; what was set before stays.
    pub fn set_attachment(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let json = to_raw_value(value).map_err(|error| {
            Error::new(ErrorKind::Payload, "the attachment cannot be written as JSON").with_source(error.into())
        })?;
        let size = json.get().len();
        if size > MAX_ATTACHMENT {
            return Err(Error::new(
                ErrorKind::Payload,
                format!("the attachment has {size} bytes, at most {MAX_ATTACHMENT} are stored; store it elsewhere and attach its name"),
            ));
        }
        self.attachment = Some(json);
        Ok(())
    }

    /// Whether this run should wind down: the worker is shutting down, or its claim is lost.
    ///
    /// Poll it at safe points; returning a pause keeps the carry.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Why this run should wind down; `None` while it should not.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.token.reason()
    }

    /// Completes when this run should wind down.
    ///
    /// It borrows nothing, so it can be awaited beside work that uses the context.
    #[must_use]
    pub fn cancelled(&self) -> Cancelled {
        self.token.cancelled()
    }

    /// The token that is cancelled when this run should wind down, for code that runs beside the handler.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    pub(crate) fn into_parts(self) -> (Facts, C, Option<Json>) {
        (self.facts, self.carry, self.attachment)
    }
}

impl<C> fmt::Debug for Context<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}
