//! One run as a future: decoding, the handler, the report, and the end of everything that belonged to it.

use std::pin::Pin;
use std::sync::Arc;

use crate::context::Ties;
use crate::handler::AsyncHandler;
use crate::job::ClaimedJob;
use crate::middleware::{AsyncNext as Next, unpanicked};
use crate::panic_boundary::{Contained, GuardedFuture, guarded};
use crate::report::{Report, Verdict};
use crate::run::{Prepared, conclude, prepare};
use crate::{Context, Outcome, TaskError};

/// A run of any kind. Nothing of it happens before it is first polled.
pub(super) type Run = Pin<Box<dyn Future<Output = Report> + Send>>;

/// Makes the run of a job of one kind; the kind's type is in the function.
pub(super) type Runner<S> = fn(ClaimedJob, Ties, Arc<Contained<S>>) -> Run;

/// The [`Runner`] of `T`. Neither polling what it returns nor dropping it panics.
pub(super) fn run<S, T>(job: ClaimedJob, ties: Ties, state: Arc<Contained<S>>) -> Run
where
    S: Send + Sync + 'static,
    T: AsyncHandler<S>,
{
    Box::pin(async move {
        let Some(state) = &state.0 else { return Report::new(Verdict::NotStarted) };
        let report = attempt::<S, T>(job, ties, state).await;
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
        (Some(task), Some(context)) => handle(task, job.payload.get(), context, state).await,
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

async fn handle<S, T>(
    task: &T,
    payload: &str,
    context: &mut Context<T::Carry>,
    state: &S,
) -> Result<Result<Outcome, TaskError>, String>
where
    S: Sync,
    T: AsyncHandler<S>,
{
    if !context.layers().surround_futures() {
        return GuardedFuture::new(|| task.handle(context, state)).await;
    }
    let (run, layers) = context.surroundings(payload);
    let handler = async { unpanicked(GuardedFuture::new(|| task.handle(context, state)).await) };
    Ok(Next::new(&run, &layers, handler).run().await)
}

#[cfg(test)]
mod tests;
