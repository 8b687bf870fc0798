//! The thread-pool front-end: handlers are plain functions that may block, each run on a thread of its own.
//!
//! A [`Worker`] claims jobs and runs them on up to `concurrency` threads; a [`Queue`] enqueues; [`migrate`] makes the
//! tables. All of them may be called from any thread, also from inside an async task, which they block: what they have
//! to do with the database happens on threads of their own.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use venturi::blocking::{self, Context, Handler, Queue, Worker};
//! use venturi::{CancellationToken, Database, Outcome, Task, TaskError};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! impl Task for Greet {
//!     const KIND: &'static str = "greet";
//!     type Carry = ();
//! }
//!
//! impl Handler<()> for Greet {
//!     fn handle(&self, context: &mut Context<()>, _app: &()) -> Result<Outcome, TaskError> {
//!         println!("job {} says hello to {}", context.job_id(), self.name);
//!         Ok(Outcome::completed())
//!     }
//! }
//!
//! fn main() -> Result<(), venturi::Error> {
//!     let database = Database::from_env()?;
//!     blocking::migrate(&database)?;
//!     Queue::connect(&database)?.enqueue(&Greet { name: "Ada".into() })?;
//!     let shutdown = CancellationToken::new(); // cancel a clone of it, say on Ctrl-C, and `run` returns
//!     let report = Worker::builder(()).database(database).register::<Greet>().concurrency(8).build()?.run(shutdown)?;
//!     println!("{} jobs settled", report.settled);
//!     Ok(())
//! }
//! ```

mod clock;
mod complete;
mod connection;
mod control;
mod coordinator;
mod hearing;
mod history;
mod host;
mod link;
mod migrate;
mod queue;
#[cfg(feature = "testing")]
pub(crate) mod testing;
mod within;
mod worker;

pub use crate::Context;
pub use crate::handler::BlockingHandler as Handler;
pub use crate::middleware::{BlockingMiddleware as Middleware, BlockingNext as Next};

pub use complete::CompleteIn;
pub use migrate::{migrate, pending_migrations};
pub use queue::{Queue, QueueBuilder};
pub use worker::{Worker, WorkerBuilder};
