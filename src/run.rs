//! The two halves of a run that are the same on a thread and in a future: decoding the job before the handler, and
//! turning what the handler returned into a report after it.
//!
//! Both call user code, so both are called inside the panic boundary.
#![deny(clippy::disallowed_methods)]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use crate::context::{Facts, Ties};
use crate::job::{ClaimedJob, Json};
use crate::report::{Report, Verdict};
use crate::{Context, Outcome, Task, TaskError};

/// A decoded job.
pub(crate) struct Prepared<T: Task> {
    pub(crate) task: T,
    pub(crate) context: Context<T::Carry>,
}

/// Decodes payload and carry.
pub(crate) fn prepare<T: Task>(job: &ClaimedJob, ties: Ties) -> Result<Prepared<T>, Report> {
    let task = decode("payload", &job.payload)?;
    let carry = match &job.carry {
        Some(json) => decode("carry", json)?,
        None => T::Carry::default(),
    };
    let facts = Facts {
        id: job.id,
        kind: T::KIND,
        priority: job.priority,
        created_at: job.created_at,
        visible_at: job.visible_at,
        failure_count: job.failure_count,
    };
    Ok(Prepared { task, context: Context::new(facts, ties, carry) })
}

fn decode<D: DeserializeOwned>(what: &str, json: &Json) -> Result<D, Report> {
    serde_json::from_str(json.get())
        .map_err(|error| Report::new(Verdict::Undecodable(format!("cannot decode the {what}: {error}"))))
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
        Err(error) => Verdict::Failed { message: error.to_string(), permanent: error.is_permanent() },
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

fn stores_carry(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Paused { .. } | Verdict::Failed { permanent: false, .. })
}
