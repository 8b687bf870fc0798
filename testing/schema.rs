//! A schema for one test.

use std::time::Duration;

use log::Level;

use crate::error::Error;
use crate::knobs::random_seed;
use crate::notice::notice;
use crate::{Database, JobFilter, JobInfo, Task};

use super::Expected;

#[cfg(not(feature = "blocking"))]
use crate::r#async::testing as front;
#[cfg(feature = "blocking")]
use crate::blocking::testing as front;

/// What the names of all test schemas begin with.
const PREFIX: &str = "venturi_test_";

/// A schema with venturi's tables, for one test; it is dropped with everything in it when this is, also by a panic.
///
/// Tests that have one each can run at the same time in one database. Drop workers and queues before it: what they have
/// in the schema is gone then, and a transaction that is still open there delays the dropping, by at most 5 seconds.
///
/// A test that is killed leaves its schema behind; so does one whose server is gone. Their names begin with
/// `venturi_test_`: [`drop_leftovers`](Self::drop_leftovers) removes them.
///
/// ```no_run
/// use venturi::testing::TestSchema;
///
/// # fn main() -> Result<(), venturi::Error> {
/// let schema = TestSchema::new()?;
/// let database = schema.database();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestSchema {
    database: Database,
}

impl TestSchema {
    /// A new schema in the database that the environment variable `DATABASE_URL` names.
    ///
    /// # Errors
    /// As [`Database::from_env`] and [`within`](Self::within).
    pub fn new() -> Result<Self, Error> {
        Self::within(&Database::from_env()?)
    }

    /// A new schema in this database, whatever schema that has.
    ///
    /// # Errors
    /// As the front-ends' `migrate`. The role needs the right to create schemas.
    pub fn within(database: &Database) -> Result<Self, Error> {
        let name = format!("{PREFIX}{:016x}", random_seed());
        let this = Self { database: database.clone().schema(&name)? };
        front::migrate(&this.database)?;
        Ok(this)
    }

    /// Where queues and workers of the test shall work.
    #[must_use]
    pub fn database(&self) -> Database {
        self.database.clone()
    }

    /// The schema's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.database.schema_name().as_str()
    }

    /// Lets time pass for the jobs that are there: everything happened, is due and expires this much earlier.
    ///
    /// Jobs for later become due, retries come up, claims run out and finished jobs grow old. What is moved are the
    /// instants in the tables; the clock of the database stays as it is, and so do the times that handlers see. Call it
    /// while no worker runs: one that does renews its claims by the real time, and may see what became due half a minute
    /// late.
    ///
    /// # Errors
    /// What keeps the statement from being executed; then nothing has moved. A time beyond 1,000 years is refused by the
    /// server.
    pub fn advance(&self, time: Duration) -> Result<(), Error> {
        let name = self.database.schema_name().quoted();
        let by = format!("make_interval(secs => {})", time.as_secs_f64());
        front::execute(
            &self.database,
            format!(
                "UPDATE {name}.live SET created_at = created_at - {by}, visible_at = visible_at - {by}, \
                 claim_expires_at = claim_expires_at - {by}, cancel_requested_at = cancel_requested_at - {by}; \
                 UPDATE {name}.finished SET created_at = created_at - {by}, visible_at = visible_at - {by}, \
                 finished_at = finished_at - {by}; \
                 UPDATE {name}.journal SET at = at - {by}"
            ),
        )
    }

    /// The jobs that fit, newest first, all pages of them.
    ///
    /// # Errors
    /// As `Queue::jobs`.
    pub fn jobs(&self, filter: JobFilter) -> Result<Vec<JobInfo>, Error> {
        front::jobs(&self.database, filter)
    }

    /// Whether the jobs that were expected are there.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # use venturi::testing::{Expected, TestSchema};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), venturi::Error> {
    /// # let schema = TestSchema::new()?;
    /// let hour = Duration::from_secs(3_600);
    /// schema.assert_enqueued(&Expected::<Remind>::new().matching(|it| it.who == "Ada").due_in(hour).times(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// When they are not, with a list of the jobs of this kind that are; and when the jobs cannot be read.
    #[track_caller]
    pub fn assert_enqueued<T: Task>(&self, expected: &Expected<'_, T>) {
        let problem = match self.jobs(JobFilter::new().kind(T::KIND)) {
            Ok(jobs) => expected.check(&jobs).err(),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            panic!("{problem}");
        }
    }

    /// Drops all test schemas of this database that a killed test has left behind.
    ///
    /// It cannot tell those from the ones in use: call it while no test runs.
    ///
    /// # Errors
    /// What keeps the statement from being executed; then nothing was dropped.
    pub fn drop_leftovers(database: &Database) -> Result<(), Error> {
        let drop_all = format!(
            "DO $$ DECLARE name text; BEGIN \
             FOR name IN SELECT nspname FROM pg_namespace WHERE nspname ~ '^{PREFIX}[0-9a-f]{{16}}$' LOOP \
             EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP; END $$"
        );
        front::execute(database, quietly(&drop_all))
    }
}

impl Drop for TestSchema {
    fn drop(&mut self) {
        let drop_it = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.database.schema_name().quoted());
        if let Err(error) = front::execute(&self.database, quietly(&drop_it)) {
            // Not a panic: this may be one's way out, and a second one would end the process.
            notice(Level::Warn, format_args!("the schema {} is left behind: {error}", self.name()));
        }
    }
}

/// A list of everything that is dropped helps nobody, nor does a test that hangs.
fn quietly(sql: &str) -> String {
    format!("SET client_min_messages = warning; SET lock_timeout = '5s'; {sql}")
}
