//! One run as a future: decoding, the handler, the report, and the end of everything that belonged to it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::context::Ties;
use crate::handler::AsyncHandler;
use crate::job::ClaimedJob;
use crate::panic_boundary::{Contained, guarded};
use crate::report::{Report, Verdict};
use crate::run::{Prepared, conclude, prepare};

/// A run of any kind. Nothing of it happens before it is first polled.
pub(super) type Run = Pin<Box<dyn Future<Output = Report> + Send>>;

/// Makes the run of a job of one kind; the kind's type is in the function.
pub(super) type Runner<S> = fn(ClaimedJob, Ties, Arc<S>) -> Run;

/// The [`Runner`] of `T`. Neither polling what it returns nor dropping it panics.
pub(super) fn run<S, T>(job: ClaimedJob, ties: Ties, state: Arc<S>) -> Run
where
    S: Send + Sync + 'static,
    T: AsyncHandler<S>,
{
    Box::pin(async move {
        let report = attempt::<S, T>(job, ties, &state).await;
        report.unwrap_or_else(|panic| Report::new(Verdict::Panicked(panic)))
    })
}

/// Gives the text of the first panic, if there was one.
async fn attempt<S, T>(job: ClaimedJob, ties: Ties, state: &S) -> Result<Report, String>
where
    S: Sync,
    T: AsyncHandler<S>,
{
    let Prepared { task, context } = match guarded(|| prepare::<T>(&job, ties))? {
        Ok(prepared) => prepared,
        Err(undecodable) => return Ok(undecodable),
    };
    // In this order: the context goes before the task, as it does below. Contained, since a run that is dropped half-way
    // drops a future, a context and a task one after the other.
    let (mut task, mut context) = (Contained::new(task), Contained::new(context));
    let result = match (&task.0, &mut context.0) {
        (Some(task), Some(context)) => complete(|| task.handle(context, state)).await,
        _ => return Ok(Report::new(Verdict::Discarded)),
    };
    let report = match (result, &mut context.0) {
        (Ok(result), Some(context)) => guarded(|| conclude(context, result)),
        (result, _) => result.map(|_| Report::new(Verdict::Discarded)),
    };
    // The first panic is the one to tell of.
    let dropped: Result<(), String> = [context.end(), task.end()].into_iter().collect();
    report.and_then(|report| dropped.map(|()| report))
}

/// Makes a future and completes it. The future is gone when this returns.
async fn complete<F: Future>(make: impl FnOnce() -> F) -> Result<F::Output, String> {
    // A panic must not leave this function: it would unwind through what the future has borrowed.
    let mut future = Contained::new(guarded(|| Box::pin(make()))?);
    let result = poll_fn(|cx| match &mut future.0 {
        Some(future) => match guarded(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
        None => Poll::Pending,
    })
    .await;
    let dropped = future.end();
    result.and_then(|output| dropped.map(|()| output))
}

#[cfg(test)]
mod tests;
