//! The README's first program, in futures: it enqueues a job, runs it, and ends.
#![allow(clippy::print_stdout, reason = "it talks to people")]

use serde::{Deserialize, Serialize};
use venturi::r#async::{Handler, Queue, Worker, migrate};
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
    async fn handle(&self, _context: &mut Context<()>, app: &App) -> Result<Outcome, TaskError> {
        println!("to {}", self.to);
        app.shutdown.cancel(); // so that this program ends; a service does it on SIGTERM
        Ok(Outcome::completed())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::from_env()?; // DATABASE_URL
    migrate(&database).await?;
    let queue = Queue::connect(&database).await?;
    queue.enqueue(&SendEmail { to: "ada@example.org".into() }).await?;

    let shutdown = CancellationToken::new();
    let app = App { shutdown: shutdown.clone() };
    let worker = Worker::builder(app)
        .database(database)
        .register::<SendEmail>()
        .spawner(|run| { tokio::spawn(run); }) // without it, handlers share the task that polls `run`
        .build()?;
    let report = worker.run(shutdown).await?;
    println!("{} settled", report.settled);
    Ok(())
}
