//! A kind of which two jobs run at once, beside one without a cap: `DATABASE_URL=… cargo run --example capped --features
//! blocking`.
//!
//! Resizing takes much memory, so two at once are enough for this process; sending mails waits for others and may use
//! all the slots that are left. A cap belongs to a worker: with three of them six resizes run at once.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a program of its own")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

const RESIZES: usize = 6;
const MAILS: usize = 20;

#[derive(Serialize, Deserialize)]
struct Resize {
    picture: usize,
}

impl Task for Resize {
    const KIND: &'static str = "resize";
    type Carry = ();
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: usize,
}

impl Task for Mail {
    const KIND: &'static str = "mail";
    type Carry = ();
}

/// How many run now, how many did so at most, and how many are still to be done.
struct App {
    resizing: AtomicUsize,
    most: AtomicUsize,
    left: AtomicUsize,
    done: CancellationToken,
}

impl App {
    fn work(&self) {
        std::thread::sleep(Duration::from_millis(50));
        if self.left.fetch_sub(1, SeqCst) == 1 {
            self.done.cancel();
        }
    }
}

impl Handler<Arc<App>> for Resize {
    fn handle(&self, _context: &mut Context<()>, app: &Arc<App>) -> Result<Outcome, TaskError> {
        app.most.fetch_max(app.resizing.fetch_add(1, SeqCst) + 1, SeqCst);
        app.work();
        app.resizing.fetch_sub(1, SeqCst);
        Ok(Outcome::completed_with(format!("picture {}", self.picture)))
    }
}

impl Handler<Arc<App>> for Mail {
    fn handle(&self, _context: &mut Context<()>, app: &Arc<App>) -> Result<Outcome, TaskError> {
        app.work();
        Ok(Outcome::completed_with(format!("to {}", self.to)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let database = Database::from_env()?;
    migrate(&database)?;
    let queue = Queue::connect(&database)?;
    queue.enqueue_many((0..RESIZES).map(|picture| Resize { picture }))?;
    queue.enqueue_many((0..MAILS).map(|to| Mail { to }))?;

    let done = CancellationToken::new();
    let left = AtomicUsize::new(RESIZES + MAILS);
    let app = Arc::new(App { resizing: 0.into(), most: 0.into(), left, done: done.clone() });
    let worker = Worker::builder(Arc::clone(&app)).database(database).concurrency(8);
    let report = worker.register_capped::<Resize>(2).register::<Mail>().build()?.run(done)?;
    println!("{} jobs, at most {} resizes at once", report.settled, app.most.load(SeqCst));
    Ok(())
}
