//! A job as arguments, for clients that this crate knows nothing of.
#![deny(clippy::disallowed_methods)]

use std::time::UNIX_EPOCH;

use crate::Database;
use crate::limits::MAX_PAYLOAD;
use crate::statement::{NewJob, render};
use crate::{Error, Submit, Task};

/// The order of the arguments that [`Prepared::sql`] takes.
const CALL: &str = "SELECT {schema}.enqueue(kind => $1::text, payload => $2::text::json, priority => $3::int, \
                    delay => $4::float8, dedup_key => $5::text, due_at => to_timestamp($6::float8)) AS id";

/// The same for a job with a trace context, which goes by the transaction: set before the function is called.
const CALL_IN_TRACE: &str = "FROM pg_catalog.set_config('venturi.trace', $7::text, true)";

/// What a job is, as plain values: for the SQL function `enqueue`, through sqlx, diesel, SeaORM or any other client.
///
/// Made by [`Submit::prepare`]. The function can be called in a transaction of the application's: the job is there when
/// that commits, and workers are woken by it.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Remind { who: String }
/// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
/// # fn main() -> Result<(), venturi::Error> {
/// use venturi::{Database, Submit};
///
/// let database = Database::new("postgres://localhost/app")?;
/// let remind = Remind { who: "Ada".into() };
/// let job = Submit::new(&remind).prepare()?;
/// assert!(job.sql(&database).starts_with(r#"SELECT "venturi".enqueue(kind => $1::text, "#));
/// assert_eq!((job.kind(), job.payload(), job.priority()), ("remind", r#"{"who":"Ada"}"#, 1));
/// assert_eq!((job.delay(), job.dedup_key(), job.due_at()), (0.0, None, None));
/// // With sqlx:
/// // let id: i64 = sqlx::query_scalar(&job.sql(&database)).bind(job.kind()).bind(job.payload())
/// //     .bind(job.priority()).bind(job.delay()).bind(job.dedup_key()).bind(job.due_at())
/// //     .fetch_one(&mut *transaction).await?;
/// # Ok(())
/// # }
/// ```
///
/// A pending job with the same dedup key is replaced by the new one, as the function's default is: a task's own `merge` is
/// Rust, and not run by the database.
#[derive(Clone, Debug)]
pub struct Prepared {
    job: NewJob,
}

impl<T: Task> Submit<'_, T> {
    /// The job as plain values, to be enqueued by a client that this crate knows nothing of.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`](crate::ErrorKind::Payload) when the task cannot be written as JSON of at most 1 MB;
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when its kind or key makes no sense.
    pub fn prepare(self) -> Result<Prepared, Error> {
        let (job, _task) = self.into_job(MAX_PAYLOAD)?;
        Ok(Prepared { job })
    }
}

impl Prepared {
    /// The statement that enqueues it, with `$1` to `$6` for the values below, in their order; and `$7` if the job has a
    /// [`trace`](Self::trace). It returns one row with the job's number, `id`, a `bigint`.
    #[must_use]
    pub fn sql(&self, database: &Database) -> String {
        let call = render(CALL, database.schema_name());
        if self.job.trace.is_some() { format!("{call} {CALL_IN_TRACE}") } else { call }
    }

    /// `$1`, text: the task's kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.job.kind
    }

    /// `$2`, text: the task as JSON.
    #[must_use]
    pub fn payload(&self) -> &str {
        self.job.payload.get()
    }

    /// `$3`, a 32-bit integer: 0 high, 1 normal, 2 low.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.job.priority.code().into()
    }

    /// `$4`, a 64-bit float: the delay in seconds; 0 means at once.
    #[must_use]
    pub fn delay(&self) -> f64 {
        self.job.delay
    }

    /// `$5`, text or NULL: the dedup key.
    #[must_use]
    pub fn dedup_key(&self) -> Option<&str> {
        self.job.dedup_key.as_deref()
    }

    /// `$6`, a 64-bit float or NULL: when it is due, in seconds since 1970, instead of a delay.
    #[must_use]
    pub fn due_at(&self) -> Option<f64> {
        self.job.due_at.map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
    }

    /// `$7`, text: the trace context. Without one there is no `$7`.
    ///
    /// It becomes the transaction's setting `venturi.trace`, so jobs that are enqueued after it in the same transaction
    /// have it as well, unless they have their own.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.job.trace.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::Deserialize;

    use super::*;
    use crate::Priority;

    #[derive(serde::Serialize, Deserialize)]
    struct Page(u8);

    impl Task for Page {
        const KIND: &'static str = "page";
        type Carry = ();
    }

    #[test]
    fn a_prepared_job_has_everything_that_it_was_submitted_with() {
        let submit = || Submit::from(Page(7)).dedup_key("k").priority(Priority::Low);
        let job = submit().delay(Duration::from_millis(1_500)).prepare().unwrap();
        assert_eq!((job.kind(), job.payload(), job.priority()), ("page", "7", 2));
        assert_eq!((job.delay(), job.dedup_key(), job.due_at()), (1.5, Some("k"), None));
        let job = submit().due_at(UNIX_EPOCH + Duration::from_millis(4_102_444_800_250)).prepare().unwrap();
        assert_eq!((job.delay(), job.due_at()), (0.0, Some(4_102_444_800.25)));
    }

    #[test]
    fn the_statement_is_one_of_the_databases_schema() {
        let database = Database::new("host=localhost").unwrap().schema("a\"b").unwrap();
        let sql = Submit::from(Page(7)).prepare().unwrap().sql(&database);
        assert!(sql.starts_with("SELECT \"a\"\"b\".enqueue("), "{sql}");
        assert!((1..=6).all(|nth| sql.contains(&format!("${nth}::"))) && !sql.contains("$7"), "{sql}");
        let job = Submit::from(Page(7)).trace("t").prepare().unwrap();
        assert!(job.sql(&database).starts_with(&sql) && job.sql(&database).contains("$7::text"));
        assert_eq!(job.trace(), Some("t"));
    }
}
