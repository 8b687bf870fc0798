//! What a handler knows of its job, and what it hands on.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::answer::{Answer, question};
use crate::ask::{Ask, Desk};
use crate::cancellation::{CancelReason, CancellationToken, Cancelled};
#[cfg(test)]
use crate::database::SchemaName;
use crate::departure::{Departure, Hold};
use crate::engine::Rules;
use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::job::{Json, RunId};
use crate::journal::JournalEntry;
use crate::limits::{MAX_ATTACHMENT, MAX_HISTORY};
use crate::middleware::{Layers, RunInfo};
use crate::statement::{Complete, Inside, Reply, Settled, Texts};
use crate::text;
use crate::{Database, JobId, Priority};

const COMPLETING: &str = "completing a job in its handler's transaction";

/// What a job's row said when it was claimed.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) id: RunId,
    pub(crate) kind: &'static str,
    pub(crate) priority: Priority,
    pub(crate) created_at: SystemTime,
    pub(crate) visible_at: SystemTime,
    pub(crate) failure_count: i32,
    pub(crate) trace: Option<Arc<str>>,
}

impl Facts {
    /// As users see it. Written by hand it may be negative.
    pub(crate) fn failures(&self) -> u32 {
        self.failure_count.max(0).unsigned_abs()
    }
}

/// What connects a run with its worker.
#[derive(Clone, Debug)]
pub(crate) struct Ties {
    pub(crate) token: CancellationToken,
    pub(crate) desk: Arc<dyn Desk>,
    pub(crate) departure: Departure,
    pub(crate) home: Home,
}

/// Who claimed the job, and the statements of the schema that it lies in. A clone is the same home.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<Household>);

#[derive(Debug)]
struct Household {
    worker: Arc<str>,
    texts: Texts,
    layers: Layers,
}

impl Home {
    pub(crate) fn new(rules: &Rules, database: &Database) -> Self {
        let (worker, texts) = (Arc::clone(&rules.worker), Texts::new(database.schema_name()));
        Self(Arc::new(Household { worker, texts, layers: rules.config.layers.clone() }))
    }

    /// For a run that has nothing to do with a database.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        let texts = Texts::new(&SchemaName::new("venturi").unwrap());
        Self(Arc::new(Household { worker: "here".into(), texts, layers: Layers::default() }))
    }
}

/// One run of one job, as its handler sees it.
///
/// `C` is the task's carry. Changes to the carry are stored when the run ends with a pause or a retryable error, and
/// discarded when it panics, times out or is released; [`checkpoint`](Self::checkpoint) stores it in between.
pub struct Context<C> {
    facts: Facts,
    ties: Ties,
    carry: C,
    attachment: Option<Json>,
    /// Since the handler has asked for it; whether its transaction was committed is not known here.
    completes_itself: bool,
}

impl<C> Context<C> {
    pub(crate) fn new(facts: Facts, ties: Ties, carry: C) -> Self {
        Self { facts, ties, carry, attachment: None, completes_itself: false }
    }

    /// The job's number.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.facts.id.job_id()
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
        self.facts.id.run_count()
    }

    /// How often the job has failed before this run.
    #[must_use]
    pub fn failure_count(&self) -> u32 {
        self.facts.failures()
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

    /// The context of the trace that the job belongs to, as it was given when the job was enqueued
    /// ([`Submit::trace`](crate::Submit::trace)).
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.facts.trace.as_deref()
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
    /// At most 64 kB of JSON text; more is refused, not cut as a note would be, since half a JSON text is none. It is
    /// discarded when the run panics, times out or is released.
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
                format!(
                    "the attachment has {size} bytes, at most {MAX_ATTACHMENT} are stored; store it elsewhere and attach its name"
                ),
            ));
        }
        self.attachment = Some(json);
        Ok(())
    }

    /// Whether this run should wind down: the worker is shutting down, the claim is lost, somebody has asked for the job to
    /// be cancelled, or the run has taken longer than it may. [`cancel_reason`](Self::cancel_reason) says which.
    ///
    /// Poll it at safe points; returning a pause keeps the carry.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.ties.token.is_cancelled()
    }

    /// Why this run should wind down; `None` while it should not.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.ties.token.reason()
    }

    /// Completes when this run should wind down.
    ///
    /// It borrows nothing, so it can be awaited beside work that uses the context.
    pub fn cancelled(&self) -> Cancelled {
        self.ties.token.cancelled()
    }

    /// The token that is cancelled when this run should wind down, for code that runs beside the handler.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.ties.token.clone()
    }

    /// Asks for the newest `most` entries of this job's journal, oldest first; at most 1,000.
    ///
    /// They are read when they are asked for, so a job with a long history starts as fast as any. The entry of this run
    /// is not among them: it is written when the run ends.
    ///
    /// # Errors
    /// The answer is [`ErrorKind::Unavailable`] when the worker stops before the database could be asked.
    pub fn history(&self, most: u32) -> Answer<Vec<JournalEntry>> {
        let (answerer, answer) = question();
        self.ties.desk.ask(self.facts.id, Ask::History { most: most.min(MAX_HISTORY), answerer });
        answer
    }

    /// Keeps this run from having ended until the guard is dropped.
    ///
    /// For work that outlives the handler's future, such as a closure on a thread pool: dropping the future does not
    /// stop it, so without a hold a shutdown or a time-out would put the job back while it is still being worked on.
    ///
    /// ```
    /// # use venturi::{Context, TaskError};
    /// # async fn unblock<T>(f: impl FnOnce() -> T) -> T { f() }
    /// async fn resize(context: &Context<()>) -> Result<(), TaskError> {
    ///     let hold = context.hold();
    ///     unblock(move || {
    ///         let _hold = hold;
    ///         // … work that nobody can interrupt …
    ///     })
    ///     .await;
    ///     Ok(())
    /// }
    /// ```
    #[must_use = "the run is held only as long as the guard lives"]
    pub fn hold(&self) -> Hold {
        self.ties.departure.hold()
    }

    /// The statement that completes the job in a transaction of its handler, and its text.
    ///
    /// From here on the row may be locked by that transaction, or gone.
    pub(crate) fn completion(&mut self, note: Option<String>) -> (Inside, Texts) {
        self.completes_itself = true;
        let (worker, texts) = (Arc::clone(&self.ties.home.0.worker), self.ties.home.0.texts.clone());
        let (note, attachment) = (note.map(|note| text::note(&note)), self.attachment.clone());
        (Inside::Complete(Complete { worker, id: self.facts.id, note, attachment }), texts)
    }

    /// Whether the handler has asked to complete the job in a transaction of its own.
    pub(crate) fn completes_itself(&self) -> bool {
        self.completes_itself
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.ties.home.0.layers
    }

    /// What layers are to know of the run, and the layers, apart from what the handler borrows.
    pub(crate) fn surroundings<'a>(&self, payload: &'a str) -> (RunInfo<'a>, Layers) {
        let home = &self.ties.home.0;
        (RunInfo::new(&self.facts, &home.worker, payload), home.layers.clone())
    }

    pub(crate) fn take_attachment(&mut self) -> Option<Json> {
        self.attachment.take()
    }
}

impl<C: Serialize> Context<C> {
    /// Stores the carry now, so that the next run starts from it whatever becomes of this one: a crash, a panic, a
    /// time-out or a lost connection.
    ///
    /// The request goes out at once; wait for its answer before doing what the checkpoint must cover.
    ///
    /// # Errors
    /// The answer is [`ErrorKind::Payload`] when the carry cannot be written as JSON, [`ErrorKind::ClaimLost`] when the
    /// job is not this run's any more, [`ErrorKind::Unavailable`] when the worker stops first, and
    /// [`ErrorKind::Conflict`] after `complete_in`, whose transaction holds the job's row.
    pub fn checkpoint(&self) -> Answer<()> {
        if self.completes_itself {
            // The worker would wait for the transaction, and the transaction's owner for the worker.
            let what = "storing a checkpoint: the transaction given to complete_in holds the job's row; \
                        store checkpoints before it";
            return Answer::known(Err(Error::new(ErrorKind::Conflict, what)));
        }
        let carry = match to_raw_value(&self.carry) {
            Ok(carry) => carry,
            Err(error) => {
                let what = "storing a checkpoint: the carry cannot be written as JSON";
                return Answer::known(Err(Error::new(ErrorKind::Payload, what).with_source(error.into())));
            }
        };
        let (answerer, answer) = question();
        self.ties.desk.ask(self.facts.id, Ask::Checkpoint { carry, answerer });
        answer
    }
}

/// What the answer to a completion means to its handler.
pub(crate) fn completed(answer: Result<Reply, Fault>) -> Result<(), Error> {
    match answer.map_err(|fault| fault.to_callers_error(COMPLETING))? {
        Reply::Completed(Settled::Accepted) => Ok(()),
        Reply::Completed(Settled::Completed) => Err(Error::new(
            ErrorKind::AlreadyCompleted,
            format!(
                "{COMPLETING}: this run has completed it before; roll back, so that its \
             effects are not there twice"
            ),
        )),
        _ => Err(Error::new(
            ErrorKind::ClaimLost,
            format!("{COMPLETING}: the job is not this run's any more; roll back, and stop working on it"),
        )),
    }
}

impl<C> fmt::Debug for Context<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}
