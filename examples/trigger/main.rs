//! A trigger enqueues a job for each row that is written, and a worker runs them.
//!
//! `DATABASE_URL=postgres://… cargo run --features blocking --example trigger`. It writes pages with plain SQL and checks
//! that each of them is indexed once, without a poll, and none that was rolled back.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a program of its own")]

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};
use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

/// As the trigger writes it.
#[derive(Serialize, Deserialize)]
struct IndexPage {
    page: i64,
}

impl Task for IndexPage {
    const KIND: &'static str = "index_page";
    type Carry = ();
}

impl Handler<Mutex<Sender<i64>>> for IndexPage {
    fn handle(&self, _context: &mut Context<()>, indexed: &Mutex<Sender<i64>>) -> Result<Outcome, TaskError> {
        indexed.lock().map_err(|_| "another handler panicked")?.send(self.page)?;
        Ok(Outcome::completed())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL")?;
    let database = Database::new(&url)?.schema("with_trigger")?;
    migrate(&database)?;
    let mut client = Client::connect(&url, NoTls)?;
    client.batch_execute(include_str!("trigger.sql"))?;

    let (sender, indexed) = channel();
    let shutdown = CancellationToken::new();
    let worker = Worker::builder(Mutex::new(sender)).database(database).poll_max(Duration::from_secs(3_600));
    let (worker, token) = (worker.register::<IndexPage>().build()?, shutdown.clone());
    let worker = thread::spawn(move || worker.run(token));

    client.batch_execute("BEGIN; INSERT INTO page VALUES (9, 'draft'); ROLLBACK")?;
    client.batch_execute(
        "BEGIN; INSERT INTO page VALUES (1, 'one'), (2, 'two'), (3, 'three'); UPDATE page SET body = 'uno' WHERE id = 1; COMMIT",
    )?;

    let within = Duration::from_secs(30);
    let pages = (0..3).map(|_| indexed.recv_timeout(within)).collect::<Result<BTreeSet<i64>, _>>()?;
    shutdown.cancel();
    let report = worker.join().map_err(|_| "the worker panicked")??;
    client.batch_execute("DROP TABLE page")?;
    if pages != BTreeSet::from([1, 2, 3]) || report.settled != 3 {
        return Err(format!("expected pages 1, 2 and 3, each once: {pages:?}, {report:?}").into());
    }
    println!("pages 1, 2 and 3 were indexed once each; the one that was rolled back left nothing");
    Ok(())
}
