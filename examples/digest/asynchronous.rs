//! The three dealings with the queue, as futures on smol. [`blocking`](crate::blocking) is its twin.
//!
//! smol is this program's choice; venturi would run on any other executor.

use venturi::r#async::{Handler, Queue, Worker};
use venturi::{CancellationToken, Context, Database, Outcome, ShutdownReport, TaskError};

use crate::Result;
use crate::arguments::Arguments;
use crate::front::Front;
use crate::results::Results;
use crate::task::{BACKSTOP, DigestFile, LEASE, Run};

/// Small enough to hear of a Ctrl-C soon, large enough for round trips not to matter.
const BATCH: usize = 500;

impl Handler<Results> for DigestFile {
    async fn handle(&self, context: &mut Context<()>, results: &Results) -> std::result::Result<Outcome, TaskError> {
        let (task, run, results) = (self.clone(), Run::of(context, Front::Async), results.clone());
        // Reading a file blocks, whatever the executor: off to the threads that it has for that.
        smol::unblock(move || task.run(&run, &results)).await
    }
}

pub(crate) fn migrate(database: &Database) -> Result<()> {
    smol::block_on(venturi::r#async::migrate(database))?;
    Ok(())
}

pub(crate) fn enqueue(database: &Database, tasks: &[DigestFile], stop: &CancellationToken) -> Result<usize> {
    smol::block_on(async {
        let queue = Queue::connect(database).await?;
        let mut enqueued = 0;
        for batch in tasks.chunks(BATCH) {
            if stop.is_cancelled() {
                break;
            }
            enqueued += queue.enqueue_many(batch).await?.len();
        }
        Ok(enqueued)
    })
}

pub(crate) fn work(
    database: &Database,
    results: &Results,
    arguments: &Arguments,
    enough: &CancellationToken,
) -> Result<Vec<ShutdownReport>> {
    let run_one = || {
        let worker = Worker::builder(results.clone())
            .database(database.clone())
            .register::<DigestFile>()
            .concurrency(arguments.concurrency)
            .lease(LEASE)
            .backstop(Some(BACKSTOP))
            .spawner(|run| smol::spawn(run).detach())
            .build();
        let enough = enough.clone();
        smol::spawn(async move {
            let report = async { worker?.run(enough.clone()).await }.await;
            report.inspect_err(|_| enough.cancel())
        })
    };
    let runs: Vec<_> = (0..arguments.workers).map(|_| run_one()).collect();
    smol::block_on(async {
        let mut reports = Vec::new();
        for run in runs {
            reports.push(run.await?);
        }
        Ok(reports)
    })
}
