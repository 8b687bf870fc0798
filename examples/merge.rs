//! Many changes become one job: `DATABASE_URL=… cargo run --example merge --features async`.
//!
//! Each line of a page that changes asks for the page to be indexed. While that job is pending, further lines join it; once
//! it runs, the next change makes a new one.

#![allow(clippy::print_stdout, reason = "a program of its own")]

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::r#async::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, DedupKey, Merge, Outcome, Pending, Submit, Task, TaskError};

#[derive(Clone, Serialize, Deserialize)]
struct IndexPage {
    page: u64,
    lines: BTreeSet<u32>,
}

impl IndexPage {
    fn line(page: u64, line: u32) -> Self {
        Self { page, lines: [line].into() }
    }
}

impl Task for IndexPage {
    const KIND: &'static str = "index_page";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        Some(self.page.into())
    }

    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        let lines = self.lines.union(&pending.task.lines).copied().collect();
        Merge::with(Self { page: self.page, lines })
    }
}

impl Handler<CancellationToken> for IndexPage {
    async fn handle(&self, context: &mut Context<()>, done: &CancellationToken) -> Result<Outcome, TaskError> {
        println!("job {} indexes the lines {:?} of page {}", context.job_id(), self.lines, self.page);
        done.cancel();
        Ok(Outcome::completed())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let database = Database::from_env()?;
    migrate(&database).await?;
    let queue = Queue::connect(&database).await?;
    for line in [3, 1, 2] {
        // A little later, so that what changes together is indexed together.
        let change = IndexPage::line(7, line);
        let enqueued = queue.enqueue(Submit::new(&change).delay(Duration::from_millis(300))).await?;
        println!("line {line} of page 7: job {}, {:?}", enqueued.id, enqueued.effect);
    }
    let done = CancellationToken::new();
    let worker = Worker::builder(done.clone()).database(database).register::<IndexPage>().build()?;
    let report = worker.run(done).await?;
    println!("{} run", report.settled);
    Ok(())
}
