//! The three dealings with the queue, on threads. [`asynchronous`](crate::asynchronous) is its twin.

use std::thread;

use venturi::blocking::{Handler, Queue, Worker};
use venturi::{CancellationToken, Context, Database, Outcome, ShutdownReport, TaskError};

use crate::Result;
use crate::arguments::Arguments;
use crate::front::Front;
use crate::results::Results;
use crate::task::{BACKSTOP, DigestFile, LEASE, Run};

/// Small enough to hear of a Ctrl-C soon, large enough for round trips not to matter.
const BATCH: usize = 500;

impl Handler<Results> for DigestFile {
    fn handle(&self, context: &mut Context<()>, results: &Results) -> std::result::Result<Outcome, TaskError> {
        self.run(&Run::of(context, Front::Blocking), results)
    }
}

pub(crate) fn migrate(database: &Database) -> Result<()> {
    venturi::blocking::migrate(database)?;
    Ok(())
}

pub(crate) fn enqueue(database: &Database, tasks: &[DigestFile], stop: &CancellationToken) -> Result<usize> {
    let queue = Queue::connect(database)?;
    let mut enqueued = 0;
    for batch in tasks.chunks(BATCH) {
        if stop.is_cancelled() {
            break;
        }
        enqueued += queue.enqueue_many(batch)?.len();
    }
    Ok(enqueued)
}

pub(crate) fn work(
    database: &Database,
    results: &Results,
    arguments: &Arguments,
    enough: &CancellationToken,
) -> Result<Vec<ShutdownReport>> {
    let run_one = || -> Result<ShutdownReport> {
        let worker = Worker::builder(results.clone())
            .database(database.clone())
            .register::<DigestFile>()
            .concurrency(arguments.concurrency)
            .lease(LEASE)
            .backstop(Some(BACKSTOP))
            .build()?;
        Ok(worker.run(enough.clone())?)
    };
    thread::scope(|scope| {
        let runs: Vec<_> =
            (0..arguments.workers).map(|_| scope.spawn(|| run_one().inspect_err(|_| enough.cancel()))).collect();
        runs.into_iter().map(|run| run.join().map_err(|_| "a worker panicked")?).collect()
    })
}
