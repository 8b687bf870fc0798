//! The two front-ends, draining jobs that do nothing.

use std::thread;

use futures_lite::future::block_on;
use serde::{Deserialize, Serialize};
use venturi::{Context, Database, Outcome, Task, TaskError, r#async, blocking};

use super::Result;
use super::server::Server;
use super::settings::Case;
use super::tally::Tally;

pub(crate) const SCHEMA: &str = "throughput_venturi";

/// Bytes of a payload's JSON text.
pub(crate) const PAYLOAD: usize = 185;
/// How many jobs go to a queue in one call.
const AT_ONCE: usize = 1_000;

/// A job that does nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Nothing {
    text: String,
}

impl Nothing {
    pub(crate) fn new() -> Self {
        let around = r#"{"text":""}"#.len();
        Self { text: "x".repeat(PAYLOAD - around) }
    }
}

impl Task for Nothing {
    const KIND: &'static str = "nothing";
    type Carry = ();
}

impl blocking::Handler<Tally> for Nothing {
    fn handle(&self, _context: &mut Context<()>, tally: &Tally) -> std::result::Result<Outcome, TaskError> {
        tally.count();
        Ok(Outcome::completed())
    }
}

impl r#async::Handler<Tally> for Nothing {
    async fn handle(&self, _context: &mut Context<()>, tally: &Tally) -> std::result::Result<Outcome, TaskError> {
        tally.count();
        Ok(Outcome::completed())
    }
}

/// Through a queue, so that rows are as they are in earnest.
pub(crate) fn fill(server: &Server, jobs: usize) -> Result<()> {
    let database = database(server)?;
    server.connect()?.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))?;
    blocking::migrate(&database)?;
    let queue = blocking::Queue::connect(&database)?;
    let tasks = vec![Nothing::new(); jobs];
    for some in tasks.chunks(AT_ONCE) {
        queue.enqueue_many(some)?;
    }
    Ok(())
}

pub(crate) fn drain_blocking(server: &Server, case: Case, tally: &Tally) -> Result<()> {
    each_on_a_thread(case.connections, || {
        let worker = blocking::Worker::builder(tally.clone())
            .database(database(server)?)
            .register::<Nothing>()
            .concurrency(case.concurrency)
            .build()?;
        worker.run(tally.all_done())?;
        Ok(())
    })
}

/// Without an executor: `run()` polls the handlers, and a bare `block_on` polls `run()`.
pub(crate) fn drain_async(server: &Server, case: Case, tally: &Tally) -> Result<()> {
    each_on_a_thread(case.connections, || {
        let worker = r#async::Worker::builder(tally.clone())
            .database(database(server)?)
            .register::<Nothing>()
            .concurrency(case.concurrency)
            .build()?;
        block_on(worker.run(tally.all_done()))?;
        Ok(())
    })
}

pub(crate) fn each_on_a_thread(count: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a measured thread panicked")?)
    })
}

fn database(server: &Server) -> Result<Database> {
    Ok(Database::new(&server.dsn)?.schema(SCHEMA)?)
}
