//! A service with async handlers on tokio: `DATABASE_URL=… cargo run --example serve_tokio --features async`.
//!
//! SIGTERM and Ctrl-C end it in good order; a second one at once, and what still ran then runs again after its lease.

use std::error::Error;
use std::time::Duration;
use std::{io, process};

use serde::{Deserialize, Serialize};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use venturi::r#async::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct Nap {
    seconds: u64,
}

impl Task for Nap {
    const KIND: &'static str = "nap";
    type Carry = ();
}

impl Handler<()> for Nap {
    async fn handle(&self, context: &mut Context<()>, _state: &()) -> Result<Outcome, TaskError> {
        eprintln!("job {} naps", context.job_id());
        // Ends early when the worker is told to stop; then another worker goes on with it.
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(self.seconds)) => Ok(Outcome::completed()),
            () = context.cancelled() => Ok(Outcome::pause_in(Duration::ZERO)),
        }
    }
}

async fn hear_signals(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! { it = ctrl_c() => it?, _ = terminate.recv() => {} }
        if shutdown.is_cancelled() {
            process::exit(130);
        }
        shutdown.cancel();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let shutdown = CancellationToken::new();
    tokio::spawn(hear_signals(shutdown.clone()));
    let database = Database::from_env()?;
    migrate(&database).await?;
    Queue::connect(&database).await?.enqueue(&Nap { seconds: 60 }).await?;
    let worker = Worker::builder(()).database(database).register::<Nap>().spawner(|run| drop(tokio::spawn(run)));
    // Less than what systemd or Kubernetes grants before SIGKILL: see docs/shutdown.md.
    let report = worker.shutdown_timeout(Duration::from_secs(20)).build()?.run(shutdown).await?;
    eprintln!("{report:?}");
    Ok(())
}
