//! One task, and a worker and a queue of either front-end for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use serde::{Deserialize, Serialize};
use venturi::{
    Backoff, CancellationToken, Context, Database, Error, Outcome, Priority, ShutdownReport, Submit, Task, TaskError,
};

use super::Result;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A job that sleeps a little, after it has failed as often as it should.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tick {
    pub(crate) nap_ms: u64,
    pub(crate) failures: u32,
}

/// The same, of a kind that no worker here runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Foreign;

impl Task for Foreign {
    const KIND: &'static str = "foreign";
    type Carry = ();
}

impl Task for Tick {
    const KIND: &'static str = "tick";
    type Carry = ();

    fn backoff() -> Option<Backoff> {
        Some(Backoff::new(Duration::from_millis(10), Duration::from_millis(50)))
    }
}

impl Tick {
    fn result(&self, context: &Context<()>) -> std::result::Result<Outcome, TaskError> {
        if context.run_count() <= self.failures { Err("not yet".into()) } else { Ok(Outcome::completed()) }
    }
}

impl venturi::blocking::Handler<Arc<Lab>> for Tick {
    fn handle(&self, context: &mut Context<()>, lab: &Arc<Lab>) -> std::result::Result<Outcome, TaskError> {
        lab.start(context);
        thread::sleep(Duration::from_millis(self.nap_ms));
        self.result(context)
    }
}

impl venturi::r#async::Handler<Arc<Lab>> for Tick {
    async fn handle(&self, context: &mut Context<()>, lab: &Arc<Lab>) -> std::result::Result<Outcome, TaskError> {
        lab.start(context);
        if self.nap_ms > 0 {
            smol::Timer::after(Duration::from_millis(self.nap_ms)).await;
        }
        self.result(context)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) at: Instant,
    pub(crate) job: i64,
    pub(crate) priority: Priority,
}

/// Where handlers note that they have started.
#[derive(Debug, Default)]
pub(crate) struct Lab {
    starts: Mutex<Vec<Start>>,
    noted: Condvar,
}

impl Lab {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn start(&self, context: &Context<()>) {
        self.note(context.job_id().get(), context.priority());
    }

    pub(crate) fn note(&self, job: i64, priority: Priority) {
        let start = Start { at: Instant::now(), job, priority };
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(start);
        self.noted.notify_all();
    }

    pub(crate) fn wait_starts(&self, count: usize) -> Result<Vec<Start>> {
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let (starts, late) = self
            .noted
            .wait_timeout_while(starts, PATIENCE, |starts| starts.len() < count)
            .unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() {
            return Err(format!("{} of {count} runs have started", starts.len()).into());
        }
        Ok(starts.clone())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Blocking,
    Async,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) concurrency: usize,
    pub(crate) poll_max: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) durable_claims: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self { concurrency: 4, poll_max: Duration::from_secs(60), lease: None, durable_claims: true }
    }
}

pub(crate) struct Running {
    shutdown: CancellationToken,
    thread: JoinHandle<std::result::Result<ShutdownReport, Error>>,
}

impl Running {
    pub(crate) fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.thread.join().map_err(|_| "the worker panicked")??;
        Ok(())
    }
}

impl Front {
    pub(crate) const BOTH: [Self; 2] = [Self::Blocking, Self::Async];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }

    pub(crate) fn queue(self, database: &Database) -> Result<Producer> {
        Ok(match self {
            Self::Blocking => Producer::Blocking(venturi::blocking::Queue::connect(database)?),
            Self::Async => Producer::Async(block_on(venturi::r#async::Queue::connect(database))?),
        })
    }

    /// Runs a worker on a thread of its own.
    pub(crate) fn start(self, database: &Database, lab: &Arc<Lab>, spec: Spec) -> Result<Running> {
        let shutdown = CancellationToken::new();
        let (told, lab, database) = (shutdown.clone(), Arc::clone(lab), database.clone());
        let lease = spec.lease.unwrap_or(Duration::from_secs(900));
        let thread = match self {
            Self::Blocking => {
                let builder = venturi::blocking::Worker::builder(lab).database(database).register::<Tick>();
                let builder = builder.durable_claims(spec.durable_claims);
                let worker =
                    builder.concurrency(spec.concurrency).poll_max(spec.poll_max).lease(lease).jitter(0.0).build()?;
                thread::spawn(move || worker.run(told))
            }
            Self::Async => {
                let builder = venturi::r#async::Worker::builder(lab).database(database).register::<Tick>();
                let builder = builder.durable_claims(spec.durable_claims);
                let worker =
                    builder.concurrency(spec.concurrency).poll_max(spec.poll_max).lease(lease).jitter(0.0).build()?;
                thread::spawn(move || block_on(worker.run(told)))
            }
        };
        Ok(Running { shutdown, thread })
    }
}

/// A queue of one front-end.
pub(crate) enum Producer {
    Blocking(venturi::blocking::Queue),
    Async(venturi::r#async::Queue),
}

impl Producer {
    pub(crate) fn enqueue<'a, T: Task>(&self, task: impl Into<Submit<'a, T>>) -> Result<i64> {
        let enqueued = match self {
            Self::Blocking(queue) => queue.enqueue(task),
            Self::Async(queue) => block_on(queue.enqueue(task)),
        };
        Ok(enqueued?.id.get())
    }
}

/// Asks again until there is an answer.
pub(crate) fn poll<T>(patience: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("not within {patience:?}").into())
}
