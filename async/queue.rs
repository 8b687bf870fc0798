//! The producing side: a handle to one private connection.

use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use futures_lite::future::yield_now;
use tokio_postgres::GenericClient;

use crate::errand::Errand;
use crate::error::{Error, ErrorKind};
use crate::knobs::random_seed;
use crate::observer::Observers;
use crate::producer::{Bulk, CallId, Input, Output, Producer, Request, Response, Rules, queue_knobs};
use crate::threads::Audience;
use crate::visit::Entrance;
use crate::{Database, Enqueued, RawJob, RecoveredStale, Submit, Task};

use super::arrivals::{Arrival, Arrivals};
use super::thread::{self, now};
use super::wire::{self, Wire};
use super::within;

/// Enqueues jobs, over one connection that a thread of its own keeps.
///
/// A clone is another handle to the same connection. Calls that come while a statement is on its way go together as
/// the next one, so many callers share a commit. When the last handle is dropped, what was asked for is still done,
/// and then the connection closes. A lost connection is made again when it is next needed.
#[derive(Clone)]
pub struct Queue {
    calls: Sender<Call>,
    database: Arc<Database>,
    entrance: Entrance,
    rules: Rules,
}

/// Sets the knobs of a [`Queue`].
#[derive(Clone, Debug)]
pub struct QueueBuilder {
    database: Database,
    rules: Rules,
    observers: Observers,
}

impl QueueBuilder {
    queue_knobs!();

    /// Connects, and checks that the schema is one that this code can work with.
    ///
    /// # Errors
    /// As [`Queue::connect`].
    ///
    /// # Cancellation
    /// Dropped at any time, it closes the connection and leaves nothing behind.
    pub async fn connect(self) -> Result<Queue, Error> {
        let Self { database, rules, observers } = self;
        let entrance = Entrance::new(&database, rules);
        let known = Arc::new(database.clone());
        // Not bounded: each caller waits for its answer, and the producer refuses what is too much.
        let (calls, inbox) = async_channel::unbounded();
        let make = move || {
            let producer = Producer::new(database.schema_name().as_str().to_owned(), rules, random_seed(), now());
            let wire = Wire::new(database);
            let audience = Audience::new(observers, None);
            let (arrivals, answers) = (Arrivals::new(inbox), HashMap::new());
            Driver { producer, wire, arrivals, calls: 0, answers, audience }.run()
        };
        thread::start("venturi-queue", make, drop)?;
        let queue = Queue { calls, database: known, entrance, rules };
        queue.call(Request::Probe).await?;
        Ok(queue)
    }
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
        Self::builder(database).connect().await
    }

    /// A queue whose knobs differ from their defaults.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), venturi::Error> {
    /// use std::time::Duration;
    /// use venturi::r#async::Queue;
    ///
    /// let database = venturi::Database::from_env()?;
    /// let queue = Queue::builder(&database).timeout(Duration::from_secs(2)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder(database: &Database) -> QueueBuilder {
        QueueBuilder { database: database.clone(), rules: Rules::default(), observers: Observers::default() }
    }

    /// Stores one job, and returns when it is committed and workers have been told.
    ///
    /// A task with a [dedup key](Task::dedup_key) may become part of a job that is pending already:
    /// [`Enqueued::effect`](crate::Enqueued::effect) tells. Its [`merge`](Task::merge) is called where the future is polled.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when the task can't be written as JSON or is too large; [`ErrorKind::NotEnqueued`] when
    /// it was not stored, for certain, because the server could not be reached for [`timeout`](QueueBuilder::timeout), and
    /// [`ErrorKind::Overloaded`] when too much waits already; [`ErrorKind::Unknown`] when the connection was lost before
    /// the answer came; [`ErrorKind::Permission`], [`ErrorKind::SchemaMissing`] or [`ErrorKind::Database`] when the server
    /// refuses it, and other kinds as [`connect`](Self::connect): then it was not stored either, but repeating the call
    /// does not help.
    /// With a dedup key also [`ErrorKind::DedupKey`](crate::ErrorKind::DedupKey),
    /// [`ErrorKind::Merge`](crate::ErrorKind::Merge) when `merge` panicked, and
    /// [`ErrorKind::Contended`](crate::ErrorKind::Contended) when others had the key all the time, or `merge` took longer
    /// than [`timeout`](QueueBuilder::timeout); with each of these nothing was stored.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, the job may or may not be
    /// enqueued.
    pub async fn enqueue<'a, T: Task>(&self, task: impl Into<Submit<'a, T>>) -> Result<Enqueued, Error> {
        self.store([task]).await.finish_one()
    }

    /// Stores a job for each task; the results are in the order of the tasks.
    ///
    /// Any number of tasks is taken in bounded memory: the iterator is pulled where the future is polled, 10,000 tasks or
    /// 8 MB of payload at a time without a pause, the next such batch while the one before is on its way. All jobs of a
    /// batch are stored together or none is; batches follow each other in order, other calls of the queue come in between,
    /// and workers start on each as soon as it is stored. So up to 10,000 tasks with 8 MB are stored all or none. No tasks
    /// at all is no error.
    ///
    /// Tasks with dedup keys are stored each for itself, those with the same key one after another. They are the exception
    /// to all or none: when one fails, others of its batch, with or without a key, may be stored.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # async fn remind(queue: &venturi::r#async::Queue, names: Vec<String>) -> Result<(), venturi::Error> {
    /// let tasks = |from| names[from..].iter().map(|who| Remind { who: who.clone() });
    /// if let Err(error) = queue.enqueue_many(tasks(0)).await {
    ///     match error.partial() {
    ///         Some(partial) if partial.in_doubt == 0 => queue.enqueue_many(tasks(partial.enqueued.len())).await?,
    ///         _ => return Err(error),
    ///     };
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue), if nothing is stored. When something is or may be, the kind is
    /// [`ErrorKind::Partly`], and its source is the failure; or [`ErrorKind::Unknown`], if the first batch's answer was
    /// lost. In any case [`Error::partial`] says which tasks are stored, which are in doubt, and
    /// so where to go on. A panic of the iterator, or of a task that is written as JSON, is an error of the kind
    /// [`ErrorKind::Payload`].
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, the batches before the one that is
    /// on its way are enqueued, that one may be, and no later one is.
    pub async fn enqueue_many<'a, T, I>(&self, tasks: I) -> Result<Vec<Enqueued>, Error>
    where
        T: Task,
        I: IntoIterator,
        I::Item: Into<Submit<'a, T>>,
    {
        self.store(tasks).await.finish()
    }

    /// The three steps of [`Bulk`]'s contract.
    async fn store<'a, T: Task, I>(&self, tasks: I) -> Bulk<'a, T, I::IntoIter>
    where
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        let mut bulk = Bulk::new(tasks, self.rules.max_payload);
        while let Some(requests) = bulk.ask() {
            let asked: Vec<_> = requests.into_iter().map(|request| self.ask(request)).collect();
            bulk.look_ahead();
            let mut answers = Vec::with_capacity(asked.len());
            for answer in asked {
                answers.push(wait(answer).await);
            }
            bulk.answered(answers);
            // The answer may have come meanwhile, and others want to be polled as well.
            yield_now().await;
        }
        bulk
    }

    /// Stores a job that is given by name and JSON text, where there is no [`Task`] type for it.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancellation
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_raw(&self, job: RawJob) -> Result<Enqueued, Error> {
        RawJob::stored(self.call(job.request(self.rules.max_payload)?).await?)
    }

    /// Stores one job over a client of the application's, as part of its transaction if it is in one.
    ///
    /// The job is there when the transaction commits, and waiting workers are woken by the commit; rolled back, it has
    /// never been. The queue's own connection has no part in it. The client may be a `Client`, a `Transaction`, or what a
    /// pool's guard derefs to (`&mut **guard`). The schema has to be in the client's database, and the client's user needs
    /// the rights of a producer there.
    ///
    /// A task without a dedup key takes one statement. One with a key takes a savepoint (a transaction, where there is
    /// none) and needs READ COMMITTED; the key stays locked to the end of the transaction, so let that be soon, and take
    /// several keys in the same order everywhere: in one call of [`enqueue_many_with`](Self::enqueue_many_with) they are.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct SendReceipt { order: i64 }
    /// # impl venturi::Task for SendReceipt { const KIND: &'static str = "send_receipt"; type Carry = (); }
    /// # async fn order(
    /// #     queue: &venturi::r#async::Queue, client: &mut tokio_postgres::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// let order = transaction.query_one("INSERT INTO customer_order DEFAULT VALUES RETURNING id", &[]).await?.get(0);
    /// queue.enqueue_with(&mut transaction, SendReceipt { order }).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when the task cannot be written, [`ErrorKind::Merge`] when its `merge` panics: nothing was
    /// sent. [`ErrorKind::Isolation`] when the task has a key and the transaction is not READ COMMITTED.
    /// [`ErrorKind::Conflict`] when another transaction keeps the key for 5 seconds (or the session's `lock_timeout`), or
    /// both wait for each other: roll back, and do the whole transaction again. [`ErrorKind::SchemaMissing`],
    /// [`ErrorKind::SchemaTooOld`] and others as the server refuses it. Of a task with a key, nothing stays behind and the
    /// transaction can go on; without one, it is as after any failed statement.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, the job may or may not be part of
    /// the transaction, and a savepoint may be open in it; roll it back. Outside of one it may or may not be enqueued.
    ///
    /// [`ErrorKind::Payload`]: crate::ErrorKind::Payload
    /// [`ErrorKind::Merge`]: crate::ErrorKind::Merge
    /// [`ErrorKind::Isolation`]: crate::ErrorKind::Isolation
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::SchemaMissing`]: crate::ErrorKind::SchemaMissing
    /// [`ErrorKind::SchemaTooOld`]: crate::ErrorKind::SchemaTooOld
    pub async fn enqueue_with<'a, T: Task>(
        &self,
        client: &mut (impl GenericClient + Send + Sync),
        task: impl Into<Submit<'a, T>>,
    ) -> Result<Enqueued, Error> {
        let mut visit = self.entrance.visit([task]);
        let savepoint = visit.has_key();
        within::enqueue(client, self.entrance.texts(), &mut visit, savepoint).await?;
        visit.finish_one()
    }

    /// As [`enqueue_with`](Self::enqueue_with), for any number of tasks: all are stored, or none.
    ///
    /// The results are in the order of the tasks. It takes a savepoint, or a transaction where there is none, and keys in
    /// their order. When it fails, nothing stays behind and the transaction can go on.
    ///
    /// Of tasks with dedup keys, let a transaction enqueue some thousand at most: each takes a lock to its end, of a table
    /// that the whole server shares and that has about 6,400 by default (`max_locks_per_transaction` times
    /// `max_connections`).
    ///
    /// # Errors
    /// As [`enqueue_with`](Self::enqueue_with); and [`ErrorKind::Database`](crate::ErrorKind::Database) when that table is
    /// full.
    ///
    /// # Cancellation
    /// As [`enqueue_with`](Self::enqueue_with).
    pub async fn enqueue_many_with<'a, T, I>(
        &self,
        client: &mut (impl GenericClient + Send + Sync),
        tasks: I,
    ) -> Result<Vec<Enqueued>, Error>
    where
        T: Task,
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        let mut visit = self.entrance.visit(tasks);
        within::enqueue(client, self.entrance.texts(), &mut visit, true).await?;
        visit.finish()
    }

    /// Puts jobs back whose workers are presumed dead, because their leases have run out; returns how many.
    ///
    /// Workers do this by themselves. It is for administration, and for a sweeper beside workers that are all busy. Each
    /// job counts a failure, waits for the default backoff, and is dead with the 20th failure, the default backstop: this
    /// handle knows no task's and no worker's own.
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
            _ => Err(miscounted()),
        }
    }

    /// Asks one question after the other until there is a result.
    pub(super) async fn run<T>(&self, mut errand: Errand<T>) -> Result<T, Error> {
        loop {
            let (inquiry, next) = match errand {
                Errand::Done(result) => return Ok(result),
                Errand::Ask(inquiry, next) => (inquiry, next),
            };
            let found = self.call(Request::Inquire(inquiry)).await.and_then(|response| match response {
                Response::Found(found) => Ok(found),
                _ => Err(gone()),
            });
            errand = next(found)?;
        }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    async fn call(&self, request: Request) -> Result<Response, Error> {
        wait(self.ask(request)).await
    }

    fn ask(&self, request: Request) -> Answers {
        let (answer, answered) = async_channel::bounded(1);
        // If the thread is gone, the answer's sender is dropped with the message.
        let _ = self.calls.try_send(Call { request, answer });
        answered
    }
}

type Answers = Receiver<Result<Response, Error>>;

async fn wait(answers: Answers) -> Result<Response, Error> {
    answers.recv().await.map_err(|_| gone())?
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
    audience: Audience,
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
            Output::Observe(event) => self.audience.tell(event),
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
        f.debug_struct("Queue").field("rules", &self.rules).finish_non_exhaustive()
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
        let _ = |queue: &Queue, client: &mut tokio_postgres::Transaction<'_>| {
            spawnable(queue.enqueue_with(client, &Noop));
            spawnable(queue.enqueue_many_with(client, [Noop]));
        };
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
