//! The async front-end on each executor, its handlers inside the worker's future or spawned.

#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "these are a test's own threads and runtimes")]

use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;

use futures_lite::future;
use tokio::runtime::Runtime;
use venturi::r#async::{BoxFuture, Queue, Worker, migrate, pending_migrations};
use venturi::{CancellationToken, Database, Enqueued, Error, RecoveredStale};

use crate::suite::effects::sessions::connect;
use crate::suite::front::{
    Front, Handlers, Inside, Job, Producer, QueueSpec, Running, WorkerSpec, configured, controlled, queue_configured,
};
use crate::suite::lab::{Charge, Estate, Lab};
use crate::suite::probe::{Kind, for_kind};
use crate::suite::surrounding::Layer;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Executor {
    /// One runtime with two threads, shared by the whole program.
    TokioThreads,
    /// A runtime of its own for each call, on the thread that calls.
    TokioCurrent,
    /// The global executor.
    Smol,
    /// None at all: the future is polled by the thread that waits for it.
    Bare,
}

impl Executor {
    fn complete<T>(self, future: impl Future<Output = T>) -> T {
        match self {
            Self::TokioThreads => shared_runtime().block_on(future),
            Self::TokioCurrent => own_runtime().block_on(future),
            Self::Smol => smol::block_on(future),
            Self::Bare => future::block_on(future),
        }
    }

    fn launch(self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::TokioThreads => drop(shared_runtime().spawn(future)),
            Self::Smol => smol::spawn(future).detach(),
            Self::TokioCurrent | Self::Bare => drop(thread::spawn(move || self.complete(future))),
        }
    }

    /// What a worker's spawner does; called inside its `run`.
    fn spawn(self, run: BoxFuture) {
        match self {
            Self::TokioThreads | Self::TokioCurrent => drop(tokio::spawn(run)),
            Self::Smol => smol::spawn(run).detach(),
            Self::Bare => drop(thread::spawn(|| future::block_on(run))),
        }
    }
}

fn shared_runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    })
}

fn own_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Where handlers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hands {
    /// Inside the worker's `run` future.
    Inside,
    /// Spawned onto the executor.
    Spawned,
    /// The handlers are blocking ones, on the worker's own threads.
    Threads,
}

#[derive(Clone, Copy)]
pub(crate) struct Async {
    pub(crate) mount: &'static str,
    pub(crate) executor: Executor,
    pub(crate) hands: Hands,
}

impl Async {
    fn built(self, spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Worker<Estate>, Error> {
        let executor = self.executor;
        let observer = lab.observer(Charge(spec.charged));
        let layer = |name| Layer { name, lab: Arc::clone(&lab), charge: Charge(spec.charged) };
        let layers = [layer("outer"), layer("inner")];
        let on_threads = self.hands == Hands::Threads;
        let mut builder =
            configured!(Worker::builder(Estate::new(&lab, spec.charged)).database(database).observer(observer), spec);
        for layer in layers.into_iter().filter(|_| spec.surrounded) {
            builder = if on_threads { builder.blocking_middleware(layer) } else { builder.middleware(layer) };
        }
        if self.hands == Hands::Spawned {
            builder = builder.spawner(move |run| executor.spawn(run));
        }
        for (kind, cap) in &spec.kinds {
            builder = for_kind!(kind, T => match cap {
                Some(cap) if on_threads => builder.register_blocking_capped::<T>(*cap),
                Some(cap) => builder.register_capped::<T>(*cap),
                None if on_threads => builder.register_blocking::<T>(),
                None => builder.register::<T>(),
            });
        }
        builder.build()
    }
}

/// Mounts bodies on executors: for each a module of its own, which has a function `front`.
macro_rules! executors {
    ($($(#[$doc:meta])* $name:ident: $executor:ident, $hands:ident, $bodies:item)*) => {
        $(
            $(#[$doc])*
            mod $name {
                fn front() -> crate::async_front::Async {
                    let mount = crate::suite::mount!();
                    let executor = crate::async_front::Executor::$executor;
                    crate::async_front::Async { mount, executor, hands: crate::async_front::Hands::$hands }
                }

                $bodies
            }
        )*
    };
}
pub(crate) use executors;

impl Front for Async {
    fn handlers(&self) -> Handlers {
        if self.hands == Hands::Threads { Handlers::Threads } else { Handlers::Futures }
    }

    fn name(&self) -> &'static str {
        "async"
    }

    fn mount(&self) -> &'static str {
        self.mount
    }

    fn migrate(&self, database: &Database) -> Result<(), Error> {
        self.executor.complete(migrate(database))
    }

    fn pending_migrations(&self, database: &Database) -> Result<venturi::PendingMigrations, Error> {
        self.executor.complete(pending_migrations(database))
    }

    fn connect_as(&self, database: &Database, spec: &QueueSpec) -> Result<Box<dyn Producer>, Error> {
        let queue = self.executor.complete(queue_configured!(Queue::builder(database), spec).connect())?;
        Ok(Box::new(Handle { executor: self.executor, queue }))
    }

    fn start(&self, spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Running, Error> {
        let executor = self.executor;
        let worker = self.built(spec, database, lab)?;
        let shutdown = CancellationToken::new();
        let run = worker.run(shutdown.clone());
        let (end, ends) = channel();
        executor.launch(async move {
            // Nobody listens when the test is over.
            let _ = end.send(run.await);
        });
        Ok(Running::new(shutdown, ends))
    }
}

struct Handle {
    executor: Executor,
    queue: Queue,
}

macro_rules! completed {
    ($handle:ident, $method:ident($($argument:expr),*)) => {
        $handle.executor.complete($handle.queue.$method($($argument),*))
    };
}

impl Producer for Handle {
    fn enqueue(&self, job: Job) -> Result<Enqueued, Error> {
        for_kind!(job.kind, T => {
            let task = T::from(job.script.clone());
            self.executor.complete(self.queue.enqueue(job.dress(&task)))
        })
    }

    fn enqueue_from(&self, kind: Kind, jobs: &mut dyn Iterator<Item = Job>) -> Result<Vec<Enqueued>, Error> {
        for_kind!(kind, T => {
            let tasks = jobs.map(|job| job.dress(T::from(job.script.clone())));
            self.executor.complete(self.queue.enqueue_many(tasks))
        })
    }

    fn recover_stale(&self) -> Result<RecoveredStale, Error> {
        self.executor.complete(self.queue.recover_stale())
    }

    fn visit(&self, url: &str, schema: &str, lab: &Lab, steps: Vec<Inside>) -> Vec<Result<Vec<Enqueued>, Error>> {
        self.executor.complete(async {
            let mut client = connect(url.to_owned()).await;
            client.batch_execute(&format!("SET search_path = \"{schema}\"")).await.expect("a search path");
            let mut said = Vec::new();
            for step in steps {
                match step {
                    Inside::Sql(sql) => client.batch_execute(sql).await.expect("the test's own statements are right"),
                    Inside::Enqueue(job) => said.push(for_kind!(job.kind, T => {
                        self.queue.enqueue_with(&mut client, job.dress(T::from(job.script.clone()))).await.map(|stored| vec![stored])
                    })),
                    Inside::EnqueueMany(kind, jobs) => said.push(for_kind!(kind, T => {
                        self.queue.enqueue_many_with(&mut client, jobs.iter().map(|job| job.dress(T::from(job.script.clone())))).await
                    })),
                    Inside::Open(gate) => lab.open(gate),
                    Inside::Wait(gate) => lab.gate(gate).cancelled().await,
                }
            }
            said
        })
    }

    controlled!(completed);
}
