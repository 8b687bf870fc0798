//! The worker that runs handlers on threads.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::handler::BlockingHandler;
use crate::knobs;
use crate::middleware::BlockingMiddleware as Middleware;
use crate::panic_boundary::{Contained, guarded};
use crate::registry::Registry;
use crate::threads::{Runner, run};
use crate::{CancellationToken, Database, ShutdownReport};

use super::coordinator::{Coordinator, Parts};

/// Claims jobs and runs each on a thread, up to `concurrency` at once.
///
/// `S` is the application's state, which every handler gets by reference.
///
/// It uses two connections, whatever its concurrency, and these threads: the one that called [`run`](Self::run), one
/// for each connection, and handler threads named `venturi-handler-1` and so on, started on demand; and one more,
/// `venturi-observer`, if it has observers.
pub struct Worker<S> {
    parts: Parts<S>,
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Begins a worker whose handlers share `state`.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use venturi::blocking::{Context, Handler, Worker};
    /// # use venturi::{CancellationToken, Outcome, Task, TaskError};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Resize;
    /// # impl Task for Resize { const KIND: &'static str = "resize"; type Carry = (); }
    /// # impl Handler<String> for Resize {
    /// #     fn handle(&self, _: &mut Context<()>, _: &String) -> Result<Outcome, TaskError> { Ok(Outcome::completed()) }
    /// # }
    /// # fn main() -> Result<(), venturi::Error> {
    /// let shutdown = CancellationToken::new();
    /// let worker = Worker::builder("images/".to_owned()).register_capped::<Resize>(2).build()?;
    /// worker.run(shutdown)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(state: S) -> WorkerBuilder<S> {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let state = Contained::new(state);
        WorkerBuilder { state, config: Config::new(cores), database: None, registry: Registry::new() }
    }

    /// Works until `shutdown` is cancelled and everything has wound down; blocks the calling thread.
    ///
    /// On shutdown no more jobs are claimed, and the running handlers see [`Context::is_cancelled`]. After
    /// [`shutdown_timeout`](WorkerBuilder::shutdown_timeout) jobs whose handlers have not started are given back;
    /// handlers that have are waited for as long as they take, because a thread cannot be stopped. Their claims are
    /// renewed all the while, so nobody else runs their jobs. Without running handlers it returns within half a second,
    /// provided that the server answers; without a server, 5 seconds after the shutdown's time-out, and the report then
    /// names the jobs whose results could not be stored.
    ///
    /// A lost connection, a restarted server or a failed statement does not end it: it reconnects, and goes on.
    /// The returned report says what became of the jobs.
    ///
    /// [`Context::is_cancelled`]: crate::Context::is_cancelled
    ///
    /// # Errors
    /// Only what no waiting can mend, found at the start: [`ErrorKind::Config`], [`ErrorKind::Authentication`],
    /// [`ErrorKind::Permission`], [`ErrorKind::SchemaMissing`], [`ErrorKind::SchemaTooOld`],
    /// [`ErrorKind::SchemaTooNew`]; and [`ErrorKind::Internal`] for a defect in venturi, after which handlers that
    /// still run are cancelled and left behind.
    pub fn run(self, shutdown: CancellationToken) -> Result<ShutdownReport, Error> {
        // Dropped last and on this thread: nothing of the worker is left when the state's resources are freed.
        let _state = Arc::clone(&self.parts.state);
        guarded(|| Coordinator::run(self.parts, &shutdown)).unwrap_or_else(|panic| {
            Err(Error::new(
                ErrorKind::Internal,
                format!("the worker {panic}; this is a defect in venturi, please report it"),
            ))
        })
    }

    /// Runs everything that is due, and what that makes due, and returns what ran; for tests.
    ///
    /// It is the worker as ever, with its handlers, its caps and all rules of retry, merging and recovery; it stops by
    /// itself once none of its kinds has a job that is ready or due, and none of its own is running. Jobs for later are
    /// left: [`advance`](crate::testing::TestSchema::advance) makes them due. Jobs of a paused kind are left, too, and
    /// so are claims of others that have not run out. A job that makes itself due at once, for ever, keeps it for ever.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn drain(self) -> Result<crate::testing::Drained, Error> {
        self.stint(crate::stint::Stint::default())
    }

    /// Runs the next job that is due, by priority, then age; one run of it, and no other. For tests.
    ///
    /// What ran is empty if nothing was due.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn run_next(self) -> Result<crate::testing::Drained, Error> {
        self.stint(crate::stint::Stint::next())
    }

    /// Runs this job once, and no other. For tests.
    ///
    /// What ran is empty if the job is not due, or of a kind that is not registered. Jobs of its kinds that are enqueued
    /// while it looks could run instead: enqueue none meanwhile.
    ///
    /// # Errors
    /// As [`run`](Self::run), and as `Queue::jobs`.
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn run_one(self, id: crate::JobId) -> Result<crate::testing::Drained, Error> {
        let pending = super::testing::jobs_now(&self.parts.database, crate::stint::pending())?;
        self.stint(crate::stint::Stint::only(id, &pending))
    }

    #[cfg(feature = "testing")]
    fn stint(mut self, stint: crate::stint::Stint) -> Result<crate::testing::Drained, Error> {
        self.parts.rules.config.set_stint(stint);
        self.run(CancellationToken::new()).map(crate::testing::Drained::new)
    }
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.parts.rules.worker)
            .field("database", &self.parts.database)
            .field("config", &self.parts.rules.config)
            .field("kinds", &self.parts.rules.kinds)
            .finish_non_exhaustive()
    }
}

/// What a [`Worker`] shall be like; made by [`Worker::builder`].
pub struct WorkerBuilder<S> {
    state: Contained<S>,
    config: Config,
    database: Option<Database>,
    registry: Registry<Runner<S>>,
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Makes the worker claim jobs of the kind `T::KIND` and run them with `T`'s handler.
    #[must_use]
    pub fn register<T: BlockingHandler<S>>(mut self) -> Self {
        self.registry.add::<T>(run::<S, T>, None, true);
        self
    }

    /// As [`register`](Self::register), with at most `max` jobs of this kind at once; 0 counts as 1.
    ///
    /// For a kind that needs something scarce. A cap at or above the worker's concurrency changes nothing.
    #[must_use]
    pub fn register_capped<T: BlockingHandler<S>>(mut self, max: usize) -> Self {
        self.registry.add::<T>(run::<S, T>, Some(max), true);
        self
    }

    /// Surrounds every run with a layer of the application's. Default: none.
    ///
    /// Called several times, the first layer is the outermost; see [`Middleware`].
    #[must_use]
    pub fn middleware(mut self, layer: impl Middleware) -> Self {
        self.config.layers.add_blocking(layer);
        self
    }

    knobs::knobs!();

    /// Checks everything and makes the worker. It connects to nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a knob's value is refused or no database is given and `DATABASE_URL` names none;
    /// [`ErrorKind::NoKinds`] when nothing is registered; [`ErrorKind::DuplicateKind`] when two types have the same
    /// `KIND`.
    pub fn build(self) -> Result<Worker<S>, Error> {
        let Self { state, config, database, registry } = self;
        let (rules, database) = knobs::assemble(config, database, &registry)?;
        Ok(Worker { parts: Parts { rules, database, registry, state: Arc::new(state) } })
    }
}

impl<S> fmt::Debug for WorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("database", &self.database)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
