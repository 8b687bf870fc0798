//! Enqueueing: any number of threads, one connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use postgres::GenericClient;

use crate::errand::Errand;
use crate::error::Error;
use crate::knobs::random_seed;
use crate::link::Epoch;
use crate::observer::Observers;
use crate::producer::{Bulk, CallId, Input, Output, Producer, Request, Response, Rules, queue_knobs};
use crate::threads::{self, Audience};
use crate::visit::Entrance;
use crate::{Database, Enqueued, RawJob, RecoveredStale, Submit, Task};

use super::clock::now;
use super::link::{LinkThreads, News};
use super::within;

const THREAD: &str = "venturi-queue";

/// Enqueues tasks. A clone is another handle to the same connection.
///
/// Calls of several threads that come while a statement is on its way share the next one, and its commit. A lost
/// connection is made again when the next call needs it. When the last handle is dropped, calls that are still waited
/// for are answered, and the connection is closed.
#[derive(Clone)]
pub struct Queue {
    handle: Arc<Handle>,
}

/// Dropped with the last `Queue`.
struct Handle {
    messages: Sender<Message>,
    database: Database,
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

    /// Connects, and checks that the tables are there.
    ///
    /// # Errors
    /// As [`Queue::connect`].
    pub fn connect(self) -> Result<Queue, Error> {
        let Self { database, rules, observers } = self;
        let (messages, inbox) = unbounded();
        let owner = Owner::new(&database, rules, observers, inbox, messages.clone());
        threads::spawn(THREAD.to_owned(), || owner.run()).map_err(|error| threads::cannot_start(THREAD, error))?;
        let queue =
            Queue { handle: Arc::new(Handle { messages, entrance: Entrance::new(&database, rules), database, rules }) };
        queue.handle.call(Request::Probe)?;
        Ok(queue)
    }
}

enum Message {
    Call(Request, Sender<Answer>),
    Input(Input),
}

type Answer = Result<Response, Error>;

impl Queue {
    /// Connects, and checks that the tables are there.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), venturi::Error> {
    /// let database = venturi::Database::from_env()?;
    /// let queue = venturi::blocking::Queue::connect(&database)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What keeps the queue from being used: [`ErrorKind::Unavailable`], [`ErrorKind::Authentication`],
    /// [`ErrorKind::Permission`], [`ErrorKind::SchemaMissing`], [`ErrorKind::SchemaTooOld`],
    /// [`ErrorKind::SchemaTooNew`], [`ErrorKind::Config`].
    ///
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Authentication`]: crate::ErrorKind::Authentication
    /// [`ErrorKind::Permission`]: crate::ErrorKind::Permission
    /// [`ErrorKind::SchemaMissing`]: crate::ErrorKind::SchemaMissing
    /// [`ErrorKind::SchemaTooOld`]: crate::ErrorKind::SchemaTooOld
    /// [`ErrorKind::SchemaTooNew`]: crate::ErrorKind::SchemaTooNew
    /// [`ErrorKind::Config`]: crate::ErrorKind::Config
    pub fn connect(database: &Database) -> Result<Self, Error> {
        Self::builder(database).connect()
    }

    /// A queue whose knobs differ from their defaults.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), venturi::Error> {
    /// use std::time::Duration;
    /// use venturi::blocking::Queue;
    ///
    /// let database = venturi::Database::from_env()?;
    /// let queue = Queue::builder(&database).timeout(Duration::from_secs(2)).connect()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder(database: &Database) -> QueueBuilder {
        QueueBuilder { database: database.clone(), rules: Rules::default(), observers: Observers::default() }
    }

    /// Stores a job for `task` and returns when it is committed and waiting workers have been told.
    ///
    /// Takes `&task`, `task`, or a [`Submit`] with delay and priority. Blocks for
    /// [`timeout`](QueueBuilder::timeout) at most when the server cannot be reached, for 12 seconds more when it stops
    /// answering.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn remind(queue: &venturi::blocking::Queue) -> Result<(), venturi::Error> {
    /// use std::time::Duration;
    /// use venturi::Submit;
    ///
    /// let remind = Remind { who: "Ada".into() };
    /// let now = queue.enqueue(&remind)?;
    /// let later = queue.enqueue(Submit::new(&remind).delay(Duration::from_secs(3600)))?;
    /// assert!(now.id < later.id);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A task with a [dedup key](Task::dedup_key) may become part of a job that is pending already:
    /// [`Enqueued::effect`](crate::Enqueued::effect) tells. Its [`merge`](Task::merge) is called on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::Payload`] when the task cannot be written as JSON of at most
    /// [`max_payload`](QueueBuilder::max_payload) bytes; [`ErrorKind::NotEnqueued`] when it was not stored for certain, so
    /// that the call may be repeated, and [`ErrorKind::Overloaded`] likewise when too much waits already;
    /// [`ErrorKind::Unknown`] when the connection ended before the answer came; [`ErrorKind::Permission`],
    /// [`ErrorKind::SchemaMissing`] or [`ErrorKind::Database`](crate::ErrorKind::Database) when the server refuses it, and
    /// other kinds as [`connect`](Self::connect): then it was not stored either, but repeating the call does not help.
    /// With a dedup key also [`ErrorKind::DedupKey`](crate::ErrorKind::DedupKey),
    /// [`ErrorKind::Merge`](crate::ErrorKind::Merge) when `merge` panicked, and
    /// [`ErrorKind::Contended`](crate::ErrorKind::Contended) when others had the key all the time, or `merge` took longer
    /// than [`timeout`](QueueBuilder::timeout); with each of these nothing was stored.
    ///
    /// [`ErrorKind::Overloaded`]: crate::ErrorKind::Overloaded
    /// [`ErrorKind::Payload`]: crate::ErrorKind::Payload
    /// [`ErrorKind::NotEnqueued`]: crate::ErrorKind::NotEnqueued
    /// [`ErrorKind::Unknown`]: crate::ErrorKind::Unknown
    /// [`ErrorKind::Permission`]: crate::ErrorKind::Permission
    /// [`ErrorKind::SchemaMissing`]: crate::ErrorKind::SchemaMissing
    pub fn enqueue<'a, T: Task>(&self, task: impl Into<Submit<'a, T>>) -> Result<Enqueued, Error> {
        self.handle.store([task]).finish_one()
    }

    /// Stores a job for each task; the results are in the order of the tasks.
    ///
    /// Any number of tasks is taken in bounded memory: the iterator is pulled on this thread, 10,000 tasks or 8 MB of
    /// payload at a time, the next such batch while the one before is on its way. All jobs of a batch are stored
    /// together or none is; batches follow each other in order, other calls of the queue come in between, and workers
    /// start on each as soon as it is stored. So up to 10,000 tasks with 8 MB are stored all or none. No tasks at all is
    /// no error.
    ///
    /// Tasks with dedup keys are stored each for itself, those with the same key one after another. They are the exception
    /// to all or none: when one fails, others of its batch, with or without a key, may be stored.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn remind(queue: &venturi::blocking::Queue, names: Vec<String>) -> Result<(), venturi::Error> {
    /// let tasks = |from| names[from..].iter().map(|who| Remind { who: who.clone() });
    /// if let Err(error) = queue.enqueue_many(tasks(0)) {
    ///     match error.partial() {
    ///         Some(partial) if partial.in_doubt == 0 => queue.enqueue_many(tasks(partial.enqueued.len()))?,
    ///         _ => return Err(error),
    ///     };
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue), if nothing is stored. When something is or may be, the kind is
    /// [`ErrorKind::Partly`](crate::ErrorKind::Partly), and its source is the failure; or
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown), if the first batch's answer was lost. In any case
    /// [`Error::partial`] says which tasks are stored, which are in doubt, and so where to go on. A panic of the
    /// iterator, or of a task that is written as JSON, is an error of the kind [`ErrorKind::Payload`].
    ///
    /// [`ErrorKind::Payload`]: crate::ErrorKind::Payload
    pub fn enqueue_many<'a, T, I>(&self, tasks: I) -> Result<Vec<Enqueued>, Error>
    where
        T: Task,
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        self.handle.store(tasks).finish()
    }

    /// Stores a job that is given by name and JSON text, where there is no [`Task`] type for it.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_raw(&self, job: RawJob) -> Result<Enqueued, Error> {
        RawJob::stored(self.handle.call(job.request(self.handle.rules.max_payload)?)?)
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
    /// # fn order(queue: &venturi::blocking::Queue, client: &mut postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction()?;
    /// let order = transaction.query_one("INSERT INTO customer_order DEFAULT VALUES RETURNING id", &[])?.get(0);
    /// queue.enqueue_with(&mut transaction, SendReceipt { order })?;
    /// transaction.commit()?;
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
    /// [`ErrorKind::Payload`]: crate::ErrorKind::Payload
    /// [`ErrorKind::Merge`]: crate::ErrorKind::Merge
    /// [`ErrorKind::Isolation`]: crate::ErrorKind::Isolation
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::SchemaMissing`]: crate::ErrorKind::SchemaMissing
    /// [`ErrorKind::SchemaTooOld`]: crate::ErrorKind::SchemaTooOld
    pub fn enqueue_with<'a, T: Task>(
        &self,
        client: &mut impl GenericClient,
        task: impl Into<Submit<'a, T>>,
    ) -> Result<Enqueued, Error> {
        let mut visit = self.handle.entrance.visit([task]);
        let savepoint = visit.has_key();
        within::enqueue(client, self.handle.entrance.texts(), &mut visit, savepoint)?;
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
    pub fn enqueue_many_with<'a, T, I>(&self, client: &mut impl GenericClient, tasks: I) -> Result<Vec<Enqueued>, Error>
    where
        T: Task,
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        let mut visit = self.handle.entrance.visit(tasks);
        within::enqueue(client, self.handle.entrance.texts(), &mut visit, true)?;
        visit.finish()
    }

    /// Puts jobs back whose workers are presumed dead, because their leases have run out; returns how many.
    ///
    /// Workers do this by themselves. It is for administration, and for a sweeper beside workers that are all busy. Each
    /// job counts a failure, waits for the default backoff, and is dead with the 20th failure, the default backstop: this
    /// handle knows no task's and no worker's own.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server cannot be reached,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses. Repeating the call is harmless.
    pub fn recover_stale(&self) -> Result<RecoveredStale, Error> {
        match self.handle.call(Request::RecoverStale)? {
            Response::Recovered(done) => Ok(done),
            _ => Err(threads::has_ended(THREAD)),
        }
    }

    pub(super) fn database(&self) -> &Database {
        &self.handle.database
    }

    /// Asks one question after the other until there is a result.
    pub(super) fn run<T>(&self, mut errand: Errand<T>) -> Result<T, Error> {
        loop {
            let (inquiry, next) = match errand {
                Errand::Done(result) => return Ok(result),
                Errand::Ask(inquiry, next) => (inquiry, next),
            };
            let found = self.handle.call(Request::Inquire(inquiry)).and_then(|response| match response {
                Response::Found(found) => Ok(found),
                _ => Err(threads::has_ended(THREAD)),
            });
            errand = next(found)?;
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("database", &self.handle.database)
            .field("rules", &self.handle.rules)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// The three steps of [`Bulk`]'s contract.
    fn store<'a, T: Task, I>(&self, tasks: I) -> Bulk<'a, T, I::IntoIter>
    where
        I: IntoIterator<Item: Into<Submit<'a, T>>>,
    {
        let mut bulk = Bulk::new(tasks, self.rules.max_payload);
        while let Some(requests) = bulk.ask() {
            let answers: Vec<_> = requests.into_iter().map(|request| self.ask(request)).collect();
            bulk.look_ahead();
            bulk.answered(answers.iter().map(wait));
        }
        bulk
    }

    /// Blocks until the owner has an answer, which it always has in the end: the producer's calls have deadlines.
    fn call(&self, request: Request) -> Answer {
        wait(&self.ask(request))
    }

    fn ask(&self, request: Request) -> Receiver<Answer> {
        let (answer, answers) = bounded(1);
        // If the owner is gone, the answer's sender is dropped with the message.
        let _ = self.messages.send(Message::Call(request, answer));
        answers
    }
}

fn wait(answers: &Receiver<Answer>) -> Answer {
    answers.recv().unwrap_or_else(|_| Err(threads::has_ended(THREAD)))
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Input(Input::Closed));
    }
}

/// The thread that owns the producer, and does for it what a worker's coordinator does for its engine.
struct Owner {
    producer: Producer,
    inbox: Receiver<Message>,
    sender: Sender<Message>,
    link: LinkThreads,
    answers: BTreeMap<CallId, Sender<Answer>>,
    calls: CallId,
    audience: Audience,
}

impl Owner {
    fn new(
        database: &Database,
        rules: Rules,
        observers: Observers,
        inbox: Receiver<Message>,
        sender: Sender<Message>,
    ) -> Self {
        Self {
            producer: Producer::new(database.schema_name().as_str().to_owned(), rules, random_seed(), now()),
            inbox,
            sender,
            link: LinkThreads::new("venturi-enqueue", database).probing(),
            answers: BTreeMap::new(),
            calls: 0,
            audience: Audience::new(observers, None),
        }
    }

    /// The three steps of the engine's contract, which is the producer's too.
    fn run(mut self) {
        loop {
            while let Some(output) = self.producer.output(now()) {
                if let Output::Stopped = output {
                    return;
                }
                self.perform(output);
            }
            let first = self.wait();
            self.pass(first);
            while let Ok(message) = self.inbox.try_recv() {
                self.pass(message);
            }
        }
    }

    fn wait(&self) -> Message {
        let message = match self.producer.deadline() {
            Some(deadline) => self.inbox.recv_deadline(deadline).ok(),
            None => self.inbox.recv().ok(),
        };
        message.unwrap_or(Message::Input(Input::Tick))
    }

    fn pass(&mut self, message: Message) {
        let input = match message {
            Message::Input(input) => input,
            Message::Call(request, answer) => {
                self.calls += 1;
                self.answers.insert(self.calls, answer);
                Input::Call(self.calls, request)
            }
        };
        self.producer.input(now(), input);
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Connect(epoch) => {
                let tell = self.teller(epoch);
                self.link.connect(tell);
            }
            Output::Disconnect => self.link.disconnect(),
            Output::Execute(id, statement) => self.link.execute(id, statement),
            Output::Answer(call, answer) => {
                if let Some(caller) = self.answers.remove(&call) {
                    let _ = caller.send(answer);
                }
            }
            Output::Observe(event) => self.audience.tell(event),
            Output::Stopped => {}
        }
    }

    fn teller(&self, epoch: Epoch) -> impl Fn(News) + Clone + Send + use<> {
        let sender = self.sender.clone();
        move |news| {
            let input = match news {
                News::Connected => Input::Connected(epoch),
                News::Lost(fault) => Input::Lost(epoch, fault),
                News::Reply(id, reply) => Input::Reply(id, reply),
                // It doesn't listen.
                News::Notified(_) => return,
            };
            let _ = sender.send(Message::Input(input));
        }
    }
}
