//! A service with blocking handlers: `DATABASE_URL=… cargo run --example serve_threads --features blocking`.
//!
//! SIGTERM and Ctrl-C end it in good order; a second one at once, and what still ran then runs again after its lease.

use std::error::Error;
use std::process;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Queue, Worker, migrate};
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
    fn handle(&self, context: &mut Context<()>, _state: &()) -> Result<Outcome, TaskError> {
        eprintln!("job {} naps", context.job_id());
        // Ends early when the worker is told to stop; then another worker goes on with it.
        let told = context.token().wait_timeout(Duration::from_secs(self.seconds));
        Ok(if told { Outcome::pause_in(Duration::ZERO) } else { Outcome::completed() })
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

    let database = Database::from_env()?;
    migrate(&database)?;
    Queue::connect(&database)?.enqueue(&Nap { seconds: 60 })?;
    // Less than what systemd or Kubernetes grants before SIGKILL: see docs/shutdown.md.
    let worker = Worker::builder(()).database(database).register::<Nap>().shutdown_timeout(Duration::from_secs(20));
    let report = worker.build()?.run(shutdown)?;
    eprintln!("{report:?}");
    Ok(())
}
