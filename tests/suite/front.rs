//! What the bodies see of a front-end: the same few calls, whichever it is and whatever runs it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use venturi::{
    CancelOutcome, CancellationToken, CancelledAll, Cleaned, Cleanup, Cursor, Database, Enqueued, Error, JobFilter,
    JobInfo, JobPage, JournalPage, PausedKind, PendingMigrations, Priority, RecoveredStale, RequeueOutcome,
    RequeuedAll, ShutdownReport, Stats, Submit, Task,
};

use super::lab::Lab;
use super::probe::{Kind, Script};

/// What a handler runs on, where the model differs between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handlers {
    /// A handler that has started cannot be stopped.
    Threads,
    /// A handler is stopped by dropping its future.
    Futures,
}

/// One front-end on one executor.
pub(crate) trait Front: Send + Sync {
    fn handlers(&self) -> Handlers;

    /// The front-end's name.
    fn name(&self) -> &'static str;

    /// The module that this is mounted as, so that a copy of this program can find it again.
    fn mount(&self) -> &'static str;

    fn migrate(&self, database: &Database) -> Result<(), Error>;

    fn pending_migrations(&self, database: &Database) -> Result<PendingMigrations, Error>;

    fn connect(&self, database: &Database) -> Result<Box<dyn Producer>, Error> {
        self.connect_as(database, &QueueSpec::default())
    }

    fn connect_as(&self, database: &Database, spec: &QueueSpec) -> Result<Box<dyn Producer>, Error>;

    /// Builds a worker and runs it beside the caller; `Err` is what `build` said.
    fn start(&self, spec: &WorkerSpec, database: Database, lab: Arc<Lab>) -> Result<Running, Error>;
}

/// What each says where nobody comes through: `migrate`, a queue, a worker.
pub(crate) fn refusals(front: &dyn Front, database: &Database) -> [Error; 3] {
    let migration = front.migrate(database).expect_err("the migration is refused");
    let queue = front.connect(database).err().expect("the queue is refused");
    let worker = front.start(&WorkerSpec::default(), database.clone(), Arc::default());
    let worker = worker.expect("building connects to nothing").end_within(super::PATIENCE);
    [migration, queue, worker.expect_err("the worker is refused")]
}

/// A front-end's `Queue`.
pub(crate) trait Producer: Send + Sync {
    fn enqueue(&self, job: Job) -> Result<Enqueued, Error>;

    /// All of one kind.
    fn enqueue_many(&self, kind: Kind, jobs: Vec<Job>) -> Result<Vec<Enqueued>, Error> {
        self.enqueue_from(kind, &mut jobs.into_iter())
    }

    /// The iterator itself is what the front-end is given.
    fn enqueue_from(&self, kind: Kind, jobs: &mut dyn Iterator<Item = Job>) -> Result<Vec<Enqueued>, Error>;

    fn recover_stale(&self) -> Result<RecoveredStale, Error>;

    /// Goes through these steps with a client of the application's in this schema; what each enqueue said.
    fn visit(&self, url: &str, schema: &str, lab: &Lab, steps: Vec<Inside>) -> Vec<Result<Vec<Enqueued>, Error>>;

    fn job(&self, id: i64) -> Result<Option<JobInfo>, Error>;

    fn jobs(&self, filter: JobFilter) -> Result<JobPage, Error>;

    fn journal(&self, id: i64, after: Option<Cursor>) -> Result<JournalPage, Error>;

    fn stats(&self) -> Result<Stats, Error>;

    fn cleanup(&self, criteria: Cleanup) -> Result<Cleaned, Error>;

    fn cancel(&self, id: i64) -> Result<CancelOutcome, Error>;

    fn cancel_all(&self, filter: JobFilter) -> Result<CancelledAll, Error>;

    fn requeue(&self, id: i64) -> Result<RequeueOutcome, Error>;

    fn requeue_all(&self, filter: JobFilter) -> Result<RequeuedAll, Error>;

    fn pause_kind(&self, kind: &str) -> Result<bool, Error>;

    fn resume_kind(&self, kind: &str) -> Result<bool, Error>;

    fn paused_kinds(&self) -> Result<Vec<PausedKind>, Error>;

    fn workers(&self) -> Result<Vec<venturi::WorkerClaims>, Error>;

    fn doctor(&self) -> Result<Vec<venturi::Finding>, Error>;

    fn enqueue_raw(&self, job: venturi::RawJob) -> Result<Enqueued, Error>;

    fn cleanup_count(&self, criteria: Cleanup) -> Result<Cleaned, Error>;

    /// Until this says that it is enough.
    fn cleanup_with(&self, criteria: Cleanup, progress: Progress) -> Result<Cleaned, Error>;
}

pub(crate) type Progress = Box<dyn FnMut(Cleaned) -> std::ops::ControlFlow<()> + Send>;

/// What an application does with its own client.
#[derive(Clone, Debug)]
pub(crate) enum Inside {
    /// `BEGIN`, `COMMIT` and whatever is in between.
    Sql(&'static str),
    Enqueue(Job),
    EnqueueMany(Kind, Vec<Job>),
    /// Opens a gate of the lab.
    Open(&'static str),
    Wait(&'static str),
}

/// Passes the calls of the history and of control on to a queue; the macro given calls a method of it.
macro_rules! controlled {
    ($call:ident) => {
        fn job(&self, id: i64) -> Result<Option<venturi::JobInfo>, Error> {
            $call!(self, job(id.into()))
        }

        fn jobs(&self, filter: venturi::JobFilter) -> Result<venturi::JobPage, Error> {
            $call!(self, jobs(filter))
        }

        fn journal(&self, id: i64, after: Option<venturi::Cursor>) -> Result<venturi::JournalPage, Error> {
            $call!(self, journal(id.into(), after))
        }

        fn stats(&self) -> Result<venturi::Stats, Error> {
            $call!(self, stats())
        }

        fn cleanup(&self, criteria: venturi::Cleanup) -> Result<venturi::Cleaned, Error> {
            $call!(self, cleanup(criteria))
        }

        fn cancel(&self, id: i64) -> Result<venturi::CancelOutcome, Error> {
            $call!(self, cancel(id.into()))
        }

        fn cancel_all(&self, filter: venturi::JobFilter) -> Result<venturi::CancelledAll, Error> {
            $call!(self, cancel_all(filter))
        }

        fn requeue(&self, id: i64) -> Result<venturi::RequeueOutcome, Error> {
            $call!(self, requeue(id.into()))
        }

        fn requeue_all(&self, filter: venturi::JobFilter) -> Result<venturi::RequeuedAll, Error> {
            $call!(self, requeue_all(filter))
        }

        fn pause_kind(&self, kind: &str) -> Result<bool, Error> {
            $call!(self, pause_kind(kind))
        }

        fn resume_kind(&self, kind: &str) -> Result<bool, Error> {
            $call!(self, resume_kind(kind))
        }

        fn paused_kinds(&self) -> Result<Vec<venturi::PausedKind>, Error> {
            $call!(self, paused_kinds())
        }

        fn workers(&self) -> Result<Vec<venturi::WorkerClaims>, Error> {
            $call!(self, workers())
        }

        fn doctor(&self) -> Result<Vec<venturi::Finding>, Error> {
            $call!(self, doctor())
        }

        fn enqueue_raw(&self, job: venturi::RawJob) -> Result<venturi::Enqueued, Error> {
            $call!(self, enqueue_raw(job))
        }

        fn cleanup_count(&self, criteria: venturi::Cleanup) -> Result<venturi::Cleaned, Error> {
            $call!(self, cleanup_count(criteria))
        }

        fn cleanup_with(
            &self,
            criteria: venturi::Cleanup,
            progress: $crate::suite::front::Progress,
        ) -> Result<venturi::Cleaned, Error> {
            $call!(self, cleanup_with(criteria, progress))
        }
    };
}
pub(crate) use controlled;

/// A job to be enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) script: Script,
    pub(crate) delay: Duration,
    pub(crate) due_at: Option<SystemTime>,
    pub(crate) priority: Option<Priority>,
    pub(crate) trace: Option<&'static str>,
}

/// The knobs of a queue; what is `None` keeps the library's default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueSpec {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_payload: Option<usize>,
    pub(crate) max_waiting: Option<usize>,
    pub(crate) notify: Option<bool>,
}

/// Sets those of these knobs that are not `None`.
macro_rules! set {
    ($builder:ident, $spec:ident: $($knob:ident),*) => {
        $(if let Some(value) = $spec.$knob {
            $builder = $builder.$knob(value);
        })*
    };
}
pub(crate) use set;

/// Sets the knobs of a queue's builder, which have the same names in both front-ends.
macro_rules! queue_configured {
    ($builder:expr, $spec:expr) => {{
        let spec: &$crate::suite::front::QueueSpec = $spec;
        let mut builder = $builder;
        $crate::suite::front::set!(builder, spec: timeout, max_payload, max_waiting, notify);
        builder
    }};
}
pub(crate) use queue_configured;

impl Job {
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(crate) fn due_at(self, due_at: SystemTime) -> Self {
        Self { due_at: Some(due_at), ..self }
    }

    /// With all but the task itself.
    pub(crate) fn dress<'a, T: Task>(&self, task: impl Into<Submit<'a, T>>) -> Submit<'a, T> {
        let submit = task.into().delay(self.delay).trace(self.trace);
        let submit = self.due_at.into_iter().fold(submit, Submit::due_at);
        self.priority.into_iter().fold(submit, Submit::priority)
    }

    pub(crate) fn traced(self, context: &'static str) -> Self {
        Self { trace: Some(context), ..self }
    }

    pub(crate) fn with_priority(self, priority: Priority) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

/// The knobs of a worker; what is `None` keeps the library's default. It travels to child processes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerSpec {
    pub(crate) kinds: Vec<(Kind, Option<usize>)>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) connections: Option<usize>,
    pub(crate) durable_claims: Option<bool>,
    pub(crate) poll_max: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) renew_leases: bool,
    pub(crate) shutdown_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) handler_grace: Option<Duration>,
    pub(crate) abort_grace: Option<Duration>,
    pub(crate) priority_ratio: Option<Option<u32>>,
    pub(crate) backoff: Option<(Duration, Duration)>,
    /// `NaN` cannot travel; nobody sends it.
    pub(crate) jitter: f64,
    pub(crate) backstop: Option<Option<u32>>,
    pub(crate) panics_are_final: bool,
    pub(crate) undecodable_is_final: bool,
    pub(crate) claimed_by: Option<String>,
    pub(crate) retain_cancelled: Option<Duration>,
    pub(crate) discard_completed: bool,
    /// Two layers around each run.
    pub(crate) surrounded: bool,
    /// State, observer and layers panic when they are dropped.
    pub(crate) charged: bool,
}

impl Default for WorkerSpec {
    /// Four slots, the plain kind, and no jitter, so that waits can be checked.
    fn default() -> Self {
        Self {
            kinds: vec![(Kind::Plain, None)],
            concurrency: Some(4),
            connections: None,
            durable_claims: None,
            poll_max: None,
            lease: None,
            renew_leases: true,
            shutdown_timeout: None,
            timeout: None,
            handler_grace: None,
            abort_grace: None,
            priority_ratio: None,
            backoff: None,
            jitter: 0.0,
            backstop: None,
            panics_are_final: false,
            undecodable_is_final: false,
            claimed_by: None,
            retain_cancelled: None,
            discard_completed: false,
            surrounded: false,
            charged: false,
        }
    }
}

impl WorkerSpec {
    pub(crate) fn of(kinds: &[Kind]) -> Self {
        Self { kinds: kinds.iter().map(|kind| (*kind, None)).collect(), ..Self::default() }
    }

    /// A worker that runs one job at a time.
    pub(crate) fn serial() -> Self {
        Self { concurrency: Some(1), ..Self::default() }
    }

    /// A worker that has to be woken: its polls and its leases are longer than anything is waited for.
    pub(crate) fn without_polls() -> Self {
        Self { poll_max: Some(Duration::from_secs(3_600)), ..Self::default() }
    }
}

/// Sets the knobs of a builder, which have the same names in both front-ends.
macro_rules! configured {
    ($builder:expr, $spec:expr) => {{
        let spec: &$crate::suite::front::WorkerSpec = $spec;
        let mut builder = $builder.jitter(spec.jitter).renew_leases(spec.renew_leases).timeout(spec.timeout);
        $crate::suite::front::set!(builder, spec: concurrency, connections, durable_claims, poll_max, lease);
        $crate::suite::front::set!(builder, spec: shutdown_timeout, handler_grace, abort_grace, priority_ratio, backstop);
        $crate::suite::front::set!(builder, spec: retain_cancelled);
        if let Some((base, cap)) = spec.backoff {
            builder = builder.backoff(venturi::Backoff::new(base, cap));
        }
        if spec.panics_are_final {
            builder = builder.panic_policy(venturi::PanicPolicy::Dead);
        }
        if spec.undecodable_is_final {
            builder = builder.decode_policy(venturi::DecodePolicy::Dead);
        }
        if let Some(name) = &spec.claimed_by {
            builder = builder.claimed_by(name.as_str());
        }
        if spec.discard_completed {
            builder = builder.discard_completed();
        }
        builder
    }};
}
pub(crate) use configured;

/// A worker at work. Dropping it tells the worker to stop, and waits for nothing.
pub(crate) struct Running {
    shutdown: CancellationToken,
    ends: Mutex<Receiver<Result<ShutdownReport, Error>>>,
}

impl Running {
    /// `ends` hears of what `run` returned; it is closed without a word if `run` panicked.
    pub(crate) fn new(shutdown: CancellationToken, ends: Receiver<Result<ShutdownReport, Error>>) -> Self {
        Self { shutdown, ends: Mutex::new(ends) }
    }

    /// Tells the worker to stop.
    pub(crate) fn tell_to_stop(&self) {
        self.shutdown.cancel();
    }

    /// Tells the worker to stop, and returns its report.
    pub(crate) fn stop(&self) -> ShutdownReport {
        self.tell_to_stop();
        self.end_within(super::PATIENCE).expect("a worker that is told to stop has nothing to complain of")
    }

    /// What `run` returns, within this time.
    pub(crate) fn end_within(&self, time: Duration) -> Result<ShutdownReport, Error> {
        match self.receiver().recv_timeout(time) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => panic!("the worker has not ended within {time:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the worker's `run` panicked, or ended before"),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.receiver().try_recv(), Err(TryRecvError::Empty))
    }

    /// For the way out of a test: waits for the end, whatever it is.
    pub(crate) fn wind_down(&self, time: Duration) {
        self.tell_to_stop();
        drop(self.receiver().recv_timeout(time));
    }

    fn receiver(&self) -> std::sync::MutexGuard<'_, Receiver<Result<ShutdownReport, Error>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
