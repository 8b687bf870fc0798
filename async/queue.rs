//! The producing side: a handle to one private connection.

use std::collections::HashMap;
use std::fmt;
use std::slice;

use async_channel::Sender;

use crate::error::{Error, ErrorKind};
use crate::job::JobId;
use crate::knobs::random_seed;
use crate::producer::{CallId, Input, Output, Producer, Request, Response, batches, partly};
use crate::statement::NewJob;
use crate::{Database, Effect, Enqueued, RecoveredStale, Submit, Task};

use super::arrivals::{Arrival, Arrivals};
use super::thread::{self, now};
use super::wire::{self, Wire};

/// Enqueues jobs, over one connection that a thread of its own keeps.
///
/// A clone is another handle to the same connection. Calls that come while a statement is on its way go together as
/// the next one, so many callers share a commit. When the last handle is dropped, what was asked for is still done,
/// and then the connection closes. A lost connection is made again when it is next needed.
#[derive(Clone)]
pub struct Queue {
    calls: Sender<Call>,
}

/// What is wanted, and where the answer goes.
struct Call {
    request: Request,
    answer: Sender<Result<Response, Error>>,
}

impl Queue {
    /// Connects, and checks that the schema is one that this code can work with.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::ReadOnly`] when no server that takes writes could be reached,
    /// [`ErrorKind::Authentication`], [`ErrorKind::Permission`] or [`ErrorKind::Config`] when it refuses,
    /// [`ErrorKind::SchemaMissing`], [`ErrorKind::SchemaTooOld`] or [`ErrorKind::SchemaTooNew`] when
    /// [`migrate`](super::migrate()) or an update of this program has to come first.
    ///
    /// # Cancellation
    /// Dropped at any time, it closes the connection and leaves nothing behind.
    pub async fn connect(database: &Database) -> Result<Self, Error> {
        // Not bounded: each caller waits for its answer.
        let (calls, inbox) = async_channel::unbounded();
        let database = database.clone();
        let make = move || {
            let producer = Producer::new(database.schema_name().as_str().to_owned(), random_seed(), now());
            let wire = Wire::new(database);
            Driver { producer, wire, arrivals: Arrivals::new(inbox), calls: 0, answers: HashMap::new() }.run()
        };
        thread::start("venturi-queue", make, drop)?;
        let queue = Self { calls };
        queue.call(Request::Probe).await?;
        Ok(queue)
    }

    /// Stores one job, and returns when it is committed and workers have been told.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when the task can't be written as JSON or is too large; [`ErrorKind::NotEnqueued`] when
    /// it was not stored, for certain, because the server could not be reached for 10 seconds or refused it;
    /// [`ErrorKind::Unknown`] when the connection was lost before the answer came.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, the job may or may not be
    /// enqueued.
    pub async fn enqueue<'a, T: Task>(&self, task: impl Into<Submit<'a, T>>) -> Result<Enqueued, Error> {
        let job = task.into().into_job()?;
        let ids = self.insert(vec![job]).await?;
        let &[id] = ids.as_slice() else { return Err(miscounted()) };
        Ok(inserted(id))
    }

    /// Stores any number of jobs, and returns them in the order of `tasks`.
    ///
    /// Up to 1,000 with 8 MB of payload are one statement, so they are stored together or not at all; more go in several
    /// of them, in order. No tasks at all is no error.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue). When a task can't be written as JSON, nothing is stored. When a later
    /// statement fails after an earlier one was committed, the kind is [`ErrorKind::Unknown`], and the message says
    /// how many jobs, from the first on, are stored for certain.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, some or all of the jobs may be
    /// enqueued, from the first on.
    pub async fn enqueue_many<'a, T, I>(&self, tasks: I) -> Result<Vec<Enqueued>, Error>
    where
        T: Task,
        I: IntoIterator,
        I::Item: Into<Submit<'a, T>>,
    {
        // All of them first, so that one that cannot be written keeps the others from being stored.
        let jobs = tasks.into_iter().map(|task| task.into().into_job()).collect::<Result<Vec<_>, Error>>()?;
        self.store(jobs).await
    }

    async fn store(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, Error> {
        let total = jobs.len();
        let mut stored = Vec::with_capacity(total);
        for batch in batches(jobs) {
            let asked = batch.len();
            let ids = self.insert(batch).await.map_err(|error| partly(stored.len(), total, error))?;
            if ids.len() != asked {
                return Err(miscounted());
            }
            stored.extend(ids.into_iter().map(inserted));
        }
        Ok(stored)
    }

    /// Puts jobs back whose workers are presumed dead, because their leases have run out; returns how many.
    ///
    /// Workers do this by themselves. It is for administration, and for a sweeper beside workers that are all busy. Each
    /// job counts a failure and waits for the default backoff, as this handle knows no task's own.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the server cannot be reached, [`ErrorKind::Database`] when it refuses. Repeating
    /// the call is harmless.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, some or all of the jobs may have
    /// been put back.
    pub async fn recover_stale(&self) -> Result<RecoveredStale, Error> {
        match self.call(Request::RecoverStale).await? {
            Response::Recovered(done) => Ok(done),
            Response::Ready | Response::Enqueued(_) => Err(miscounted()),
        }
    }

    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<i64>, Error> {
        let Response::Enqueued(ids) = self.call(Request::Enqueue(jobs)).await? else { return Err(miscounted()) };
        Ok(ids)
    }

    async fn call(&self, request: Request) -> Result<Response, Error> {
        let (answer, answered) = async_channel::bounded(1);
        let sent = self.calls.try_send(Call { request, answer });
        sent.map_err(|_| gone())?;
        answered.recv().await.map_err(|_| gone())?
    }
}

fn inserted(id: i64) -> Enqueued {
    Enqueued { id: JobId(id), effect: Effect::Inserted }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Internal,
        "enqueueing: the queue's thread has ended, which is a defect in venturi; please report it",
    )
}

fn miscounted() -> Error {
    Error::new(
        ErrorKind::Internal,
        "enqueueing: the jobs were stored, but not as many numbers came back; please report this defect",
    )
}

struct Driver {
    producer: Producer,
    wire: Wire,
    arrivals: Arrivals<Call>,
    calls: CallId,
    answers: HashMap<CallId, Sender<Result<Response, Error>>>,
}

impl Driver {
    /// The loop that [`Producer`] asks for.
    async fn run(mut self) -> Result<(), Error> {
        loop {
            while let Some(output) = self.producer.output(now()) {
                if let Output::Stopped = output {
                    return Ok(());
                }
                self.carry_out(output);
            }
            let news = self.arrivals.wait(slice::from_mut(&mut self.wire), self.producer.deadline()).await;
            let now = now();
            if news.is_empty() {
                self.producer.input(now, Input::Tick);
            }
            for it in news {
                let input = self.input(it);
                self.producer.input(now, input);
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect(epoch) => self.wire.connect(epoch),
            Output::Disconnect => self.wire.disconnect(),
            Output::Execute(id, statement) => self.wire.execute(id, statement),
            Output::Answer(id, answer) => {
                if let Some(caller) = self.answers.remove(&id) {
                    // Fails when the caller has stopped waiting.
                    let _ = caller.try_send(answer);
                }
            }
            Output::Stopped => debug_assert!(false, "the loop ends with it"),
        }
    }

    fn input(&mut self, news: Arrival<Call>) -> Input {
        match news {
            Arrival::Wire(_, wire::News::Connected(epoch)) => Input::Connected(epoch),
            Arrival::Wire(_, wire::News::Lost(epoch, fault)) => Input::Lost(epoch, fault),
            Arrival::Wire(_, wire::News::Reply(id, reply)) => Input::Reply(id, reply),
            // It listens to nothing.
            Arrival::Wire(_, wire::News::Notified(_)) => Input::Tick,
            Arrival::Message(Call { request, answer }) => {
                self.calls += 1;
                self.answers.insert(self.calls, answer);
                Input::Call(self.calls, request)
            }
            Arrival::Closed => Input::Closed,
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Noop;

    impl Task for Noop {
        const KIND: &'static str = "noop";
        type Carry = ();
    }

    #[test]
    fn handles_can_be_shared_and_their_futures_spawned() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        fn spawnable(_: impl Future + Send) {}
        shared::<Queue>();
        let _ = |queue: &Queue, database: &Database| {
            spawnable(Queue::connect(database));
            spawnable(queue.enqueue(Noop));
            spawnable(queue.enqueue(&Noop));
            spawnable(queue.enqueue_many([&Noop, &Noop]));
            spawnable(super::super::migrate(database));
        };
    }

    #[test]
    fn a_queue_without_a_server_is_an_error() {
        let database = Database::new("host=/nowhere user=nobody").unwrap();
        let error = futures_lite::future::block_on(Queue::connect(&database)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
