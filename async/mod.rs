//! Workers and queues as futures, on any executor.
//!
//! A worker's handlers run where its `run` future is polled, or wherever a spawner puts them; nothing here names an
//! executor or starts one. What talks to the server is a thread of its own for each worker, so leases stay renewed
//! however long a handler keeps its executor busy.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use venturi::r#async::{Handler, Queue, Worker, migrate};
//! use venturi::{CancellationToken, Context, Database, Error, Outcome, Task, TaskError};
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
//! /// What every handler can use.
//! struct App {
//!     greeting: &'static str,
//! }
//!
//! impl Handler<App> for Greet {
//!     async fn handle(&self, _context: &mut Context<()>, app: &App) -> Result<Outcome, TaskError> {
//!         Ok(Outcome::completed_with(format!("{}, {}!", app.greeting, self.name)))
//!     }
//! }
//!
//! async fn serve(shutdown: CancellationToken) -> Result<(), Error> {
//!     let database = Database::new("postgres://localhost/app")?;
//!     migrate(&database).await?;
//!     let queue = Queue::connect(&database).await?;
//!     queue.enqueue(Greet { name: "Ada".into() }).await?;
//!     let worker = Worker::builder(App { greeting: "Hello" }).database(database).register::<Greet>().build()?;
//!     let report = worker.run(shutdown).await?;
//!     println!("{} runs were settled", report.settled);
//!     Ok(())
//! }
//! # fn main() -> Result<(), Error> { futures_lite::future::block_on(serve(CancellationToken::new())) }
//! ```

mod arrivals;
mod complete;
mod connection;
mod control;
mod execute;
mod hearing;
mod history;
mod io;
mod migrate;
mod net;
mod queue;
mod runner;
mod spawn;
mod task;
#[cfg(feature = "testing")]
pub(crate) mod testing;
mod thread;
mod wire;
mod within;
mod worker;

pub use self::complete::CompleteIn;
pub use self::migrate::{migrate, pending_migrations};
pub use self::queue::{Queue, QueueBuilder};
pub use self::spawn::{BoxFuture, Spawn};
pub use self::worker::{Worker, WorkerBuilder};
pub use crate::Context;
pub use crate::handler::{AsyncHandler as Handler, BlockingHandler};
pub use crate::middleware::{AsyncMiddleware as Middleware, AsyncNext as Next, BlockingMiddleware, BlockingNext};
