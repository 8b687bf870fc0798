//! The blocking front-end, called from plain threads or from inside an async task.

#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "this is a test's own thread")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use postgres::{Client, NoTls};
use venturi::blocking::{Queue, Worker, migrate, pending_migrations};
use venturi::{CancellationToken, Database, Enqueued, Error, RecoveredStale};

use crate::suite::front::{
    Front, Handlers, Inside, Job, Producer, QueueSpec, Running, WorkerSpec, configured, controlled, queue_configured,
};
use crate::suite::lab::{Charge, Estate, Lab};
use crate::suite::probe::{Kind, LONGEST, for_kind};
use crate::suite::surrounding::Layer;

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

    fn pending_migrations(&self, database: &Database) -> Result<venturi::PendingMigrations, Error> {
        self.call(|| pending_migrations(database))
    }

    fn connect_as(&self, database: &Database, spec: &QueueSpec) -> Result<Box<dyn Producer>, Error> {
        let queue = self.call(|| queue_configured!(Queue::builder(database), spec).connect())?;
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

fn built(spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Worker<Estate>, Error> {
    let observer = lab.observer(Charge(spec.charged));
    let layer = |name| Layer { name, lab: Arc::clone(&lab), charge: Charge(spec.charged) };
    let layers = [layer("outer"), layer("inner")];
    let mut builder =
        configured!(Worker::builder(Estate::new(&lab, spec.charged)).database(database).observer(observer), spec);
    if spec.surrounded {
        builder = layers.into_iter().fold(builder, |builder, layer| builder.middleware(layer));
    }
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

macro_rules! called {
    ($handle:ident, $method:ident($($argument:expr),*)) => {
        $handle.front.call(|| $handle.queue.$method($($argument),*))
    };
}

impl Producer for Handle {
    fn enqueue(&self, job: Job) -> Result<Enqueued, Error> {
        self.front.call(|| {
            for_kind!(job.kind, T => {
                let task = T::from(job.script.clone());
                self.queue.enqueue(job.dress(&task))
            })
        })
    }

    fn enqueue_from(&self, kind: Kind, jobs: &mut dyn Iterator<Item = Job>) -> Result<Vec<Enqueued>, Error> {
        self.front.call(
            || for_kind!(kind, T => self.queue.enqueue_many(jobs.map(|job| job.dress(T::from(job.script.clone()))))),
        )
    }

    fn recover_stale(&self) -> Result<RecoveredStale, Error> {
        self.front.call(|| self.queue.recover_stale())
    }

    fn visit(&self, url: &str, schema: &str, lab: &Lab, steps: Vec<Inside>) -> Vec<Result<Vec<Enqueued>, Error>> {
        let work = || {
            let mut client = Client::connect(url, NoTls).expect("the server is there");
            client.batch_execute(&format!("SET search_path = \"{schema}\"")).expect("a search path");
            let mut said = Vec::new();
            for step in steps {
                match step {
                    Inside::Sql(sql) => client.batch_execute(sql).expect("the test's own statements are right"),
                    Inside::Enqueue(job) => said.push(for_kind!(job.kind, T => {
                        self.queue.enqueue_with(&mut client, job.dress(T::from(job.script.clone()))).map(|stored| vec![stored])
                    })),
                    Inside::EnqueueMany(kind, jobs) => said.push(for_kind!(kind, T => {
                        self.queue.enqueue_many_with(&mut client, jobs.iter().map(|job| job.dress(T::from(job.script.clone()))))
                    })),
                    Inside::Open(gate) => lab.open(gate),
                    Inside::Wait(gate) => assert!(lab.gate(gate).wait_timeout(LONGEST), "{gate} was never opened"),
                }
            }
            said
        };
        // A client of the blocking kind must not be used inside an async task.
        thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
    }

    controlled!(called);
}
