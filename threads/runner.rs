//! One run on its thread: decoding, the handler, the report, and the end of everything that belonged to it.

use crate::context::Ties;
use crate::handler::BlockingHandler;
use crate::job::ClaimedJob;
use crate::middleware::BlockingNext;
use crate::panic_boundary::guarded;
use crate::report::{Report, Verdict};
use crate::run::{Prepared, conclude, prepare};
use crate::{Context, Outcome, TaskError};

/// Runs a job of one kind; the kind's type is in the function. It never panics.
pub(crate) type Runner<S> = fn(&ClaimedJob, Ties, &S) -> Report;

/// The [`Runner`] of `T`.
pub(crate) fn run<S, T: BlockingHandler<S>>(job: &ClaimedJob, ties: Ties, state: &S) -> Report {
    attempt::<S, T>(job, ties, state).unwrap_or_else(|panic| Report::new(Verdict::Panicked(panic)))
}

/// Gives the text of the first panic, if there was one.
///
/// Each step is guarded by itself: task and carry must not be dropped while a panic unwinds, because one more panic
/// then, in their `Drop`, would end the process.
fn attempt<S, T: BlockingHandler<S>>(job: &ClaimedJob, ties: Ties, state: &S) -> Result<Report, String> {
    let Prepared { task, mut context } = match guarded(|| prepare::<T>(job, ties))? {
        Ok(prepared) => prepared,
        Err(undecodable) => return Ok(undecodable),
    };
    let result = handle(&task, job.payload.get(), &mut context, state);
    let report = result.and_then(|result| guarded(|| conclude(&mut context, result)));
    let dropped: Result<(), String> = [guarded(|| drop(context)), guarded(|| drop(task))].into_iter().collect();
    report.and_then(|report| dropped.map(|()| report))
}

fn handle<S, T: BlockingHandler<S>>(
    task: &T,
    payload: &str,
    context: &mut Context<T::Carry>,
    state: &S,
) -> Result<Result<Outcome, TaskError>, String> {
    if !context.layers().surround_threads() {
        return guarded(|| task.handle(context, state));
    }
    let (run, layers) = context.surroundings(payload);
    Ok(BlockingNext::new(&run, &layers, || task.handle(context, state)).run())
}

#[cfg(test)]
mod tests;
