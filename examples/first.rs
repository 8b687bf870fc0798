//! The README's first program, on threads: it enqueues a job, runs it, and ends.
#![allow(clippy::print_stdout, reason = "it talks to people")]

use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

/// A task is data. What a worker does with it is its handler; a producer needs only the task.
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Task for SendEmail {
    const KIND: &'static str = "send_email"; // what the row says
    type Carry = (); // what one run hands to the next
}

/// Your connections, clients, settings.
struct App {
    shutdown: CancellationToken,
}

impl Handler<App> for SendEmail {
    fn handle(&self, _context: &mut Context<()>, app: &App) -> Result<Outcome, TaskError> {
        println!("to {}", self.to);
        app.shutdown.cancel(); // so that this program ends; a service does it on SIGTERM
        Ok(Outcome::completed())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::from_env()?; // DATABASE_URL
    migrate(&database)?;
    Queue::connect(&database)?.enqueue(&SendEmail { to: "ada@example.org".into() })?;

    let shutdown = CancellationToken::new();
    let app = App { shutdown: shutdown.clone() };
    let report = Worker::builder(app).database(database).register::<SendEmail>().build()?.run(shutdown)?;
    println!("{} settled", report.settled);
    Ok(())
}
