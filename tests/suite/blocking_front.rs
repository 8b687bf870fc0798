//! The blocking front-end, called from plain threads or from inside an async task.

#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "this is a test's own thread")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use venturi::blocking::{Queue, Worker, migrate};
use venturi::{CancellationToken, Database, Enqueued, Error, RecoveredStale, Submit};

use crate::suite::front::{Front, Handlers, Job, Producer, Running, WorkerSpec, configured};
use crate::suite::lab::Lab;
use crate::suite::probe::{Kind, for_kind};

#[derive(Clone, Copy)]
pub(crate) struct Blocking {
    pub(crate) mount: &'static str,
    /// Whether every call is made inside a tokio task.
    pub(crate) inside_tokio: bool,
}

impl Blocking {
    fn call<T>(self, call: impl FnOnce() -> T) -> T {
        if !self.inside_tokio {
            return call();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { call() })
    }
}

impl Front for Blocking {
    fn handlers(&self) -> Handlers {
        Handlers::Threads
    }

    fn name(&self) -> &'static str {
        "blocking"
    }

    fn mount(&self) -> &'static str {
        self.mount
    }

    fn migrate(&self, database: &Database) -> Result<(), Error> {
        self.call(|| migrate(database))
    }

    fn connect(&self, database: &Database) -> Result<Box<dyn Producer>, Error> {
        let queue = self.call(|| Queue::connect(database))?;
        Ok(Box::new(Handle { front: *self, queue }))
    }

    fn start(&self, spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Running, Error> {
        let worker = built(spec, database, lab)?;
        let (front, shutdown) = (*self, CancellationToken::new());
        let token = shutdown.clone();
        let (end, ends) = channel();
        thread::spawn(move || {
            // Nobody listens when the test is over.
            let _ = end.send(front.call(|| worker.run(token)));
        });
        Ok(Running::new(shutdown, ends))
    }
}

fn built(spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Worker<Arc<Lab>>, Error> {
    let mut builder = configured!(Worker::builder(lab).database(database), spec);
    for (kind, cap) in &spec.kinds {
        builder = for_kind!(kind, T => match cap {
            Some(cap) => builder.register_capped::<T>(*cap),
            None => builder.register::<T>(),
        });
    }
    builder.build()
}

struct Handle {
    front: Blocking,
    queue: Queue,
}

impl Producer for Handle {
    fn enqueue(&self, job: Job) -> Result<Enqueued, Error> {
        let Job { kind, script, delay, priority } = job;
        self.front.call(|| {
            for_kind!(kind, T => {
                let task = T::from(script);
                let submit = Submit::new(&task).delay(delay);
                self.queue.enqueue(priority.into_iter().fold(submit, Submit::priority))
            })
        })
    }

    fn enqueue_many(&self, kind: Kind, jobs: Vec<Job>) -> Result<Vec<Enqueued>, Error> {
        self.front.call(|| {
            for_kind!(kind, T => self.queue.enqueue_many(jobs.into_iter().map(|job| {
                let submit = Submit::from(T::from(job.script)).delay(job.delay);
                job.priority.into_iter().fold(submit, Submit::priority)
            })))
        })
    }

    fn recover_stale(&self) -> Result<RecoveredStale, Error> {
        self.front.call(|| self.queue.recover_stale())
    }
}
