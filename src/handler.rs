//! How a task is run: one trait for threads, one for futures.
//!
//! Both are described here because describing a handler needs neither a thread nor an executor; each front-end
//! exports its own as `Handler`.
#![deny(clippy::disallowed_methods)]

#[cfg(any(feature = "blocking", feature = "async"))]
use crate::{Context, Outcome, Task, TaskError};

/// Runs a task on a thread.
///
/// `S` is the application's shared state, given to the worker once. The handler may block. It must be idempotent:
/// after a crash, a lost connection or a time-out the job is run again.
///
/// `Err` counts as a failure and is retried with backoff unless it is [`TaskError::permanent`]; a panic is caught and
/// handled by the worker's panic policy.
#[cfg(any(feature = "blocking", feature = "async"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run by a blocking worker whose state is `{S}`",
    note = "implement `venturi::blocking::Handler<{S}>` for it"
)]
pub trait BlockingHandler<S>: Task {
    /// Does the work of one run.
    ///
    /// # Errors
    /// Whatever the work failed with; `?` makes any error a retryable one.
    fn handle(&self, context: &mut Context<Self::Carry>, state: &S) -> Result<Outcome, TaskError>;
}

/// Runs a task as a future.
///
/// `S` is the application's shared state, given to the worker once. The future runs in the application's own executor
/// and must not block its thread. It must be idempotent: after a crash, a lost connection or a time-out the job is run
/// again.
///
/// `Err` counts as a failure and is retried with backoff unless it is [`TaskError::permanent`]; a panic is caught and
/// handled by the worker's panic policy.
///
/// # Cancellation
/// The future is dropped when the run times out and, after the cooperative signal, when the shutdown time-out has
/// passed. Work that goes on elsewhere after the drop is the handler's own business.
#[cfg(feature = "async")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run by an async worker whose state is `{S}`",
    note = "implement `venturi::r#async::Handler<{S}>` for it"
)]
pub trait AsyncHandler<S>: Task {
    /// Does the work of one run.
    ///
    /// # Errors
    /// Whatever the work failed with; `?` makes any error a retryable one.
    fn handle(
        &self,
        context: &mut Context<Self::Carry>,
        state: &S,
    ) -> impl Future<Output = Result<Outcome, TaskError>> + Send;
}
