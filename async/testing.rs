//! What the test kit does over connections of its own; `jobs_now` for futures, all else for a thread that waits.
#![cfg_attr(feature = "blocking", allow(dead_code, reason = "with both front-ends the kit takes the other one"))]

use std::sync::mpsc::channel;

use crate::error::ErrorKind;
use crate::fault::Fault;
use crate::{Database, Error, JobFilter, JobInfo};

use super::Queue;
use super::connection::Connection;
use super::thread;

/// Makes the tables.
pub(crate) fn migrate(database: &Database) -> Result<(), Error> {
    let database = database.clone();
    waited(move || async move { super::migrate(&database).await })
}

/// Runs these statements as one transaction.
pub(crate) fn execute(database: &Database, sql: String) -> Result<(), Error> {
    let database = database.clone();
    waited(move || async move {
        let in_words = |fault: Fault| fault.to_error("preparing a test");
        let Connection { client, mut traffic } = Connection::open(&database).await.map_err(in_words)?;
        traffic.carry(client.batch_execute(&sql)).await.map_err(in_words)
    })
}

/// All jobs that fit, newest first.
pub(crate) fn jobs(database: &Database, filter: JobFilter) -> Result<Vec<JobInfo>, Error> {
    let database = database.clone();
    waited(move || async move { jobs_now(&database, filter).await })
}

pub(super) async fn jobs_now(database: &Database, mut filter: JobFilter) -> Result<Vec<JobInfo>, Error> {
    let queue = Queue::connect(database).await?;
    let mut found = Vec::new();
    loop {
        let page = queue.jobs(filter.clone()).await?;
        found.extend(page.jobs);
        let Some(next) = page.next else { return Ok(found) };
        filter = filter.after(next);
    }
}

/// Completes the future on a thread of its own, and waits for it.
fn waited<T, F>(make: impl FnOnce() -> F + Send + 'static) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let (answer, answers) = channel();
    thread::start("venturi-testing", make, move |end| drop(answer.send(end)))?;
    let vanished = |_| Err(Error::new(ErrorKind::Internal, "preparing a test: its thread ended without a word"));
    answers.recv().unwrap_or_else(vanished)
}
