//! What the test kit does over connections of its own.

use crate::fault::Fault;
use crate::{Database, Error, JobFilter, JobInfo, threads};

use super::Queue;
use super::connection::Address;

/// Makes the tables.
pub(crate) fn migrate(database: &Database) -> Result<(), Error> {
    super::migrate(database)
}

/// Runs these statements as one transaction.
pub(crate) fn execute(database: &Database, sql: String) -> Result<(), Error> {
    let address = Address::new(database);
    threads::call("venturi-testing", move || {
        let done = address.open().and_then(|mut client| client.batch_execute(&sql).map_err(Fault::from_postgres));
        done.map_err(|fault| fault.to_error("preparing a test"))
    })
}

/// All jobs that fit, newest first.
pub(crate) fn jobs(database: &Database, filter: JobFilter) -> Result<Vec<JobInfo>, Error> {
    jobs_now(database, filter)
}

pub(super) fn jobs_now(database: &Database, mut filter: JobFilter) -> Result<Vec<JobInfo>, Error> {
    let queue = Queue::connect(database)?;
    let mut found = Vec::new();
    loop {
        let page = queue.jobs(filter.clone())?;
        found.extend(page.jobs);
        let Some(next) = page.next else { return Ok(found) };
        filter = filter.after(next);
    }
}
