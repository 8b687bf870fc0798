//! The two halves of a run that are the same on a thread and in a future: decoding the job before the handler, and
//! turning what the handler returned into a report after it.
//!
//! Both call user code, so both are called inside the panic boundary; and inside it again, where a panic would unwind
//! through another value of the user's.
#![deny(clippy::disallowed_methods)]

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::context::{Facts, Ties};
use crate::job::ClaimedJob;
use crate::panic_boundary::{Contained, guarded};
use crate::reading::{Unreadable, read};
use crate::report::{Report, Verdict};
use crate::{Context, Outcome, Task, TaskError};

/// A decoded job.
pub(crate) struct Prepared<T: Task> {
    pub(crate) task: T,
    pub(crate) context: Context<T::Carry>,
}

/// Decodes payload and carry.
pub(crate) fn prepare<T: Task>(job: &ClaimedJob, ties: Ties) -> Result<Prepared<T>, Report> {
    let carry = job.carry.as_deref().map(RawValue::get);
    let (task, carry) = read::<T>(job.payload.get(), carry).map_err(|why| {
        Report::new(match why {
            Unreadable::Undecodable(text) => Verdict::Undecodable(text),
            Unreadable::Panicked(text) => Verdict::Panicked(text),
        })
    })?;
    let facts = Facts {
        id: job.id,
        kind: T::KIND,
        priority: job.priority,
        created_at: job.created_at,
        visible_at: job.visible_at,
        failure_count: job.failure_count,
        trace: job.trace.clone(),
    };
    Ok(Prepared { task, context: Context::new(facts, ties, carry) })
}

/// Turns what a handler returned into a report.
///
/// The context stays with the caller, who drops it inside a boundary of its own: its carry's `Drop` may panic too.
pub(crate) fn conclude<C: Serialize>(context: &mut Context<C>, result: Result<Outcome, TaskError>) -> Report {
    let attachment = context.take_attachment();
    let mut report = Report::new(match result {
        // A note that comes now comes too late: the row is written.
        Ok(Outcome::Completed { .. }) if context.completes_itself() => Verdict::CompletedItself,
        Ok(Outcome::Completed { note }) => Verdict::Completed { note },
        Ok(Outcome::Pause { resume_in, note }) => Verdict::Paused { resume_in, note },
        Err(error) => match failed(error) {
            Ok(failed) => failed,
            Err(panic) => return Report::new(Verdict::Panicked(panic)),
        },
    });
    report.attachment = attachment;
    if stores_carry(&report.verdict) {
        match to_raw_value(context.carry()) {
            Ok(json) => report.carry = Some(json),
            Err(error) => {
                report.degraded =
                    Some(format!("the carry cannot be written as JSON ({error}); the stored one was kept"));
            }
        }
    }
    report
}

fn failed(error: TaskError) -> Result<Verdict, String> {
    if error.is_panic() {
        return Err(error.to_string());
    }
    let permanent = error.is_permanent();
    let message = guarded(|| error.to_string());
    // The first panic is the one to tell of.
    let dropped = Contained::new(error).end();
    let message = message?;
    dropped.map(|()| Verdict::Failed { message, permanent })
}

fn stores_carry(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Paused { .. } | Verdict::Failed { permanent: false, .. })
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Hostile;

    impl fmt::Display for Hostile {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("speechless")
        }
    }

    impl std::error::Error for Hostile {}

    impl Drop for Hostile {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn an_error_that_panics_when_told_and_when_dropped_does_not_end_the_process() {
        assert_eq!(failed(TaskError::retryable(Hostile)).unwrap_err(), "panicked: speechless");
    }
}
