//! A service with async handlers on smol: `DATABASE_URL=… cargo run --example serve_smol --features async`.
//!
//! SIGTERM and Ctrl-C end it in good order; a second one at once, and what still ran then runs again after its lease.

use std::error::Error;
use std::process;
use std::time::Duration;

use futures_lite::future;
use serde::{Deserialize, Serialize};
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
        let nap = async { _ = smol::Timer::after(Duration::from_secs(self.seconds)).await };
        // Ends early when the worker is told to stop; then another worker goes on with it.
        future::or(nap, context.cancelled()).await;
        Ok(if context.is_cancelled() { Outcome::pause_in(Duration::ZERO) } else { Outcome::completed() })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    ctrlc::set_handler(move || {
        if token.is_cancelled() {
            process::exit(130);
        }
        token.cancel();
    })?;
    smol::block_on(serve(shutdown))
}

async fn serve(shutdown: CancellationToken) -> Result<(), Box<dyn Error>> {
    let database = Database::from_env()?;
    migrate(&database).await?;
    Queue::connect(&database).await?.enqueue(&Nap { seconds: 60 }).await?;
    let worker = Worker::builder(()).database(database).register::<Nap>().spawner(|run| smol::spawn(run).detach());
    // Less than what systemd or Kubernetes grants before SIGKILL: see docs/shutdown.md.
    let report = worker.shutdown_timeout(Duration::from_secs(20)).build()?.run(shutdown).await?;
    eprintln!("{report:?}");
    Ok(())
}
