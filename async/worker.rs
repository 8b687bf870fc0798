//! A worker: what is registered, and the future that runs it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::available_parallelism;

use async_channel::Receiver;
use futures_lite::Stream;
use futures_util::stream::FuturesUnordered;
use log::Level;

use crate::Database;
use crate::cancellation::{CancellationToken, Hook};
use crate::config::Config;
use crate::engine::{Input, Rules};
use crate::error::{Error, ErrorKind};
use crate::handler::{AsyncHandler, BlockingHandler};
use crate::knobs::assemble;
use crate::middleware::{AsyncMiddleware as Middleware, BlockingMiddleware};
use crate::notice::notice;
use crate::panic_boundary::{Contained, guarded};
use crate::registry::Registry;
use crate::report::ShutdownReport;
use crate::threads;

use super::io::{self, Blocking, Channels, Order, Ticket};
use super::runner::{self, Runner};
use super::spawn::Spawn;
use super::task::{Inbox, JobTask};

/// Runs jobs of the kinds that are registered, as futures.
///
/// Building one does nothing yet; [`run`](Self::run) does everything.
///
/// ```no_run
/// # use venturi::r#async::{Handler, Worker};
/// # use venturi::CancellationToken;
/// # async fn serve<T: Handler<()>>(shutdown: CancellationToken) -> Result<(), venturi::Error> {
/// let worker = Worker::builder(()).register::<T>().concurrency(16).build()?;
/// worker.run(shutdown).await?;
/// # Ok(())
/// # }
/// ```
pub struct Worker<S> {
    rules: Rules,
    database: Database,
    crew: Crew<S>,
    blocking: Vec<Option<threads::Runner<S>>>,
}

/// Sets up a [`Worker`]. `S` is the state that every handler is given.
pub struct WorkerBuilder<S> {
    config: Config,
    database: Option<Database>,
    registry: Registry<Hand<S>>,
    state: Contained<S>,
    spawner: Contained<Box<dyn Spawn>>,
}

/// What runs the jobs of a kind.
enum Hand<S> {
    Future(Runner<S>),
    Thread(threads::Runner<S>),
}

/// What it takes to run a job.
struct Crew<S> {
    /// By kind; nothing for those that run on threads.
    runners: Vec<Option<Runner<S>>>,
    state: Arc<Contained<S>>,
    /// Nothing: inside the `run` future.
    spawner: Contained<Box<dyn Spawn>>,
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Begins to set up a worker whose handlers share `state`.
    pub fn builder(state: S) -> WorkerBuilder<S> {
        let cores = available_parallelism().map_or(1, usize::from);
        let (config, registry) = (Config::new(cores), Registry::new());
        WorkerBuilder { config, database: None, registry, state: Contained::new(state), spawner: Contained(None) }
    }

    /// Runs jobs until `shutdown` is cancelled and everything that was begun has been brought to an end.
    ///
    /// Without a [`spawner`](WorkerBuilder::spawner) the handlers are polled inside this future: concurrently, on one
    /// thread. With one they are handed to it. Either way the leases are renewed from a thread of the worker's own, so
    /// a handler that computes for long, or an executor that is busy, costs no lease.
    ///
    /// After `shutdown` nothing more is claimed, and every run's context says that it should wind down. What still runs
    /// when `shutdown_timeout` is over is dropped, and its job released without a failure. A future that doesn't let
    /// itself be dropped within `abort_grace` after that, because it never yields, is reported as left claimed.
    ///
    /// A lost connection, a restarted server or a failing statement does not end it: it reconnects and goes on.
    ///
    /// # Errors
    /// Only for what no waiting mends. At the start: [`ErrorKind::Authentication`], [`ErrorKind::Permission`],
    /// [`ErrorKind::Config`] (there is no such database), [`ErrorKind::SchemaMissing`], [`ErrorKind::SchemaTooOld`],
    /// [`ErrorKind::SchemaTooNew`]. Later: [`ErrorKind::Spawner`] when the spawner throws all runs away,
    /// [`ErrorKind::Internal`] for a defect.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, it has done nothing. Dropped later, the handlers inside it are dropped with
    /// it, those that were spawned are aborted, and the worker's thread releases the jobs of all that have stopped
    /// within `abort_grace`; the others become claimable when their leases run out. Nobody hears of the result. To stop a
    /// worker in good order, cancel `shutdown` and await the future.
    pub async fn run(self, shutdown: CancellationToken) -> Result<ShutdownReport, Error> {
        let Self { rules, database, crew, blocking } = self;
        let blocking = Blocking { runners: blocking, state: Arc::clone(&crew.state) };
        let channels = io::start(rules, database, blocking, shutdown.clone())?;
        let mut stage = Stage::new(crew, channels, &shutdown);
        poll_fn(|cx| stage.poll(cx)).await
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
    ///
    /// # Cancellation
    /// As [`run`](Self::run).
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn drain(self) -> Result<crate::testing::Drained, Error> {
        self.stint(crate::stint::Stint::default()).await
    }

    /// Runs the next job that is due, by priority, then age; one run of it, and no other. For tests.
    ///
    /// What ran is empty if nothing was due.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancellation
    /// As [`run`](Self::run).
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn run_next(self) -> Result<crate::testing::Drained, Error> {
        self.stint(crate::stint::Stint::next()).await
    }

    /// Runs this job once, and no other. For tests.
    ///
    /// What ran is empty if the job is not due, or of a kind that is not registered. Jobs of its kinds that are enqueued
    /// while it looks could run instead: enqueue none meanwhile.
    ///
    /// # Errors
    /// As [`run`](Self::run), and as `Queue::jobs`.
    ///
    /// # Cancellation
    /// As [`run`](Self::run).
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn run_one(self, id: crate::JobId) -> Result<crate::testing::Drained, Error> {
        let pending = super::testing::jobs_now(&self.database, crate::stint::pending()).await?;
        self.stint(crate::stint::Stint::only(id, &pending)).await
    }

    #[cfg(feature = "testing")]
    async fn stint(mut self, stint: crate::stint::Stint) -> Result<crate::testing::Drained, Error> {
        self.rules.config.set_stint(stint);
        self.run(CancellationToken::new()).await.map(crate::testing::Drained::new)
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Lets the worker claim jobs of `T`'s kind, and run them with `T`'s handler.
    #[must_use]
    pub fn register<T: AsyncHandler<S>>(mut self) -> Self {
        self.registry.add::<T>(Hand::Future(runner::run::<S, T>), None, false);
        self
    }

    /// As [`register`](Self::register), with at most `max` runs of this kind at once; 0 counts as 1.
    ///
    /// The cap holds within this worker, below its `concurrency`.
    #[must_use]
    pub fn register_capped<T: AsyncHandler<S>>(mut self, max: usize) -> Self {
        self.registry.add::<T>(Hand::Future(runner::run::<S, T>), Some(max), false);
        self
    }

    /// Lets the worker claim jobs of `T`'s kind, and run them on threads of its own with `T`'s blocking handler.
    ///
    /// For work that blocks or computes. Threads are started when they are needed, never more than `concurrency`. The
    /// rules of blocking handlers hold: once started, such a run is never aborted and its job never released, and a
    /// shutdown waits for it without bound.
    #[must_use]
    pub fn register_blocking<T: BlockingHandler<S>>(mut self) -> Self {
        self.registry.add::<T>(Hand::Thread(threads::run::<S, T>), None, true);
        self
    }

    /// As [`register_blocking`](Self::register_blocking), with at most `max` runs of this kind at once; 0 counts as 1.
    #[must_use]
    pub fn register_blocking_capped<T: BlockingHandler<S>>(mut self, max: usize) -> Self {
        self.registry.add::<T>(Hand::Thread(threads::run::<S, T>), Some(max), true);
        self
    }

    /// Surrounds every run whose handler is a future with a layer of the application's. Default: none.
    ///
    /// Called several times, the first layer is the outermost; see [`Middleware`].
    #[must_use]
    pub fn middleware(mut self, layer: impl Middleware) -> Self {
        self.config.layers.add_async(layer);
        self
    }

    /// Surrounds every run whose handler is a blocking one likewise; see [`BlockingMiddleware`].
    #[must_use]
    pub fn blocking_middleware(mut self, layer: impl BlockingMiddleware) -> Self {
        self.config.layers.add_blocking(layer);
        self
    }

    crate::knobs::knobs!();

    /// Where handlers run. Default: inside the worker's `run` future, concurrently but not in parallel.
    ///
    /// ```
    /// # use venturi::r#async::Worker;
    /// let on_tokio = Worker::builder(()).spawner(|run| {
    ///     tokio::spawn(run);
    /// });
    /// let on_smol = Worker::builder(()).spawner(|run| smol::spawn(run).detach());
    /// ```
    #[must_use]
    pub fn spawner(mut self, spawner: impl Spawn) -> Self {
        self.spawner = Contained::new(Box::new(spawner));
        self
    }

    /// Checks everything that can be checked without a server.
    ///
    /// # Errors
    /// [`ErrorKind::NoKinds`] when nothing is registered, [`ErrorKind::DuplicateKind`] when two types have the same
    /// `KIND`, [`ErrorKind::Config`] when a knob has a value that makes no sense, or no database is named.
    pub fn build(self) -> Result<Worker<S>, Error> {
        let Self { config, database, registry, state, spawner } = self;
        let (rules, database) = assemble(config, database, &registry)?;
        let hands = registry.into_runners().into_iter().map(|hand| match hand {
            Hand::Future(runner) => (Some(runner), None),
            Hand::Thread(runner) => (None, Some(runner)),
        });
        let (runners, blocking) = hands.unzip();
        Ok(Worker { rules, database, crew: Crew { runners, state: Arc::new(state), spawner }, blocking })
    }
}

impl<S> Crew<S> {
    fn task(&self, ticket: Ticket, inbox: &Inbox) -> Option<JobTask> {
        let Ticket { start, ties, fate } = ticket;
        let runner = self.runners.get(start.kind).copied().flatten();
        debug_assert!(runner.is_some(), "the engine starts only what is registered");
        let starts = start.report_start.then(|| (start.id, inbox.clone()));
        let departure = ties.departure.clone();
        let run = runner?(start.job, ties, Arc::clone(&self.state));
        Some(JobTask::new(run, fate, starts, departure))
    }
}

/// What happens inside a polled `run` future.
struct Stage<S> {
    crew: Crew<S>,
    orders: Pin<Box<Receiver<Order>>>,
    inbox: Inbox,
    /// The runs that no spawner took.
    local: FuturesUnordered<JobTask>,
    /// Tells the engine about a shutdown at once, on the thread that cancels the token.
    _hook: Hook,
}

impl<S> Stage<S> {
    fn new(crew: Crew<S>, channels: Channels, shutdown: &CancellationToken) -> Self {
        let Channels { inbox, orders } = channels;
        let told = inbox.clone();
        let hook = shutdown.on_cancel(Box::new(move || told.send(Input::Shutdown)));
        Self { crew, orders: Box::pin(orders), inbox, local: FuturesUnordered::new(), _hook: hook }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ShutdownReport, Error>> {
        loop {
            match self.orders.as_mut().poll_next(cx) {
                Poll::Ready(Some(Order::Start(tickets))) => tickets.into_iter().for_each(|ticket| self.start(ticket)),
                Poll::Ready(Some(Order::Stopped(result))) => return Poll::Ready(result),
                Poll::Ready(None) => return Poll::Ready(Err(vanished())),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(())) = Pin::new(&mut self.local).poll_next(cx) {}
        Poll::Pending
    }

    fn start(&mut self, ticket: Ticket) {
        let Some(task) = self.crew.task(ticket, &self.inbox) else { return };
        let Some(spawner) = &self.crew.spawner.0 else {
            self.local.push(task);
            return;
        };
        // When it panics, the task is dropped on the way, and reports itself as discarded.
        if let Err(panic) = guarded(|| spawner.spawn(Box::pin(task))) {
            notice(Level::Error, format_args!("the spawner {panic}"));
        }
    }
}

impl<S> Drop for Stage<S> {
    fn drop(&mut self) {
        // First of all, so that what is discarded below is not taken for a spawner's doing. After a regular end nobody
        // hears it.
        self.inbox.send(Input::Abandoned);
        self.local.clear();
        // Orders that were not taken out of the channel would keep their tickets, and the engine waiting for them.
        self.orders.close();
        while self.orders.try_recv().is_ok() {}
    }
}

fn vanished() -> Error {
    Error::new(ErrorKind::Internal, "running the worker: its thread ended without a word; please report this defect")
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("rules", &self.rules).field("database", &self.database).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for WorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("config", &self.config)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
