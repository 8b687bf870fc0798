//! What happens inside a worker, as typed events, each with one line in the log.
#![deny(clippy::disallowed_methods)]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use log::kv::{self, Key, Source, Value, VisitSource};
use log::{Level, Record};

use crate::panic_boundary::Contained;
use crate::{Effect, JobId, JobStatus, JournalEvent};

const TARGET: &str = "venturi";

/// Hears of what happens in a worker or a queue. Given to their builders with `observer`; there may be several.
///
/// Closures are observers, too. What is told has happened: an event comes after the write that it reports was confirmed.
///
/// Observers are called one after the other on a thread of their own, so a slow one delays no lease and no job. When
/// 10,000 events wait, further ones are dropped but for the very last, and [`Event::Missed`] tells how many. A panic is
/// logged, and the next event is told as if nothing had happened. A worker that stops, and a queue that is dropped, tell
/// what waits first; a worker waits for that for 300 ms.
///
/// ```
/// use venturi::{Event, Observed};
///
/// let failures = |observed: &Observed<'_>| {
///     if let Event::Settled { job, kind, outcome, ran, .. } = observed.event {
///         println!("{:?}: job {job} ({kind}) {outcome} after {ran:?}", observed.worker);
///     }
/// };
/// # fn observer(_: impl venturi::Observer) {}
/// # observer(failures);
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Takes note of one event.
    fn observe(&self, observed: &Observed<'_>);
}

impl<F: Fn(&Observed<'_>) + Send + Sync + 'static> Observer for F {
    fn observe(&self, observed: &Observed<'_>) {
        self(observed);
    }
}

/// An event, and where it happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The worker's identity as its claims are recorded, `host:pid:suffix`; `None` for what happened in a queue.
    pub worker: Option<&'a str>,
    /// What happened.
    pub event: &'a Event,
}

impl<'a> Observed<'a> {
    #[cfg_attr(not(any(feature = "blocking", feature = "async")), allow(dead_code, reason = "front-ends observe"))]
    pub(crate) fn new(worker: Option<&'a str>, event: &'a Event) -> Self {
        Self { worker, event }
    }
}

/// It may be dropped long after it was given, and together with others.
impl<O: Observer> Observer for Contained<O> {
    fn observe(&self, observed: &Observed<'_>) {
        if let Some(observer) = &self.0 {
            observer.observe(observed);
        }
    }
}

/// The observers of one worker or queue. A clone is cheap.
#[derive(Clone, Default)]
pub(crate) struct Observers(pub(crate) Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Arc::new(Contained::new(observer)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

/// What happened in a worker or a queue.
///
/// Each is written to the log as well, with the target `venturi` and the fields as key-values: what every job does at
/// the level debug, what an operator did at info, what an operator should know at warn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A worker has begun to work.
    #[non_exhaustive]
    WorkerStarted {
        /// Its identity.
        worker: String,
    },
    /// A job was stored by a queue. Not told of what is stored in a transaction of the application's, since only the
    /// application knows whether that was committed.
    #[non_exhaustive]
    Enqueued {
        /// The job.
        job: JobId,
        /// Its kind.
        kind: Cow<'static, str>,
    },
    /// A task became part of a pending job with the same dedup key.
    #[non_exhaustive]
    Merged {
        /// The job that stands for the task.
        job: JobId,
        /// Its kind.
        kind: Cow<'static, str>,
        /// How.
        effect: Effect,
    },
    /// A claim brought jobs.
    #[non_exhaustive]
    Claimed {
        /// How many.
        count: usize,
    },
    /// A claimed job was handed to its handler.
    #[non_exhaustive]
    Started {
        /// The job.
        job: JobId,
        /// Which run of it: 1 for the first.
        run: u32,
        /// Its kind.
        kind: &'static str,
        /// From when the job was due until it was claimed, by the database's clock alone.
        waited: Duration,
    },
    /// A run's result was stored.
    #[non_exhaustive]
    Settled {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
        /// What became of the job, as its row says: cancelled if somebody had asked for that, whatever else than
        /// completed its run has left.
        outcome: JournalEvent,
        /// From handing it to its handler until that ended, or had timed out. Zero if the job could not be read.
        ran: Duration,
    },
    /// The job is not this run's any more: somebody else has it, or it has gone. The run is cancelled.
    #[non_exhaustive]
    ClaimLost {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
    },
    /// A run's result came after its claim was lost or its time-out was stored, and is discarded.
    #[non_exhaustive]
    LateResult {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind; empty if it is not known any more.
        kind: &'static str,
    },
    /// A handler had completed its job with `complete_in` and then ended otherwise, which is discarded.
    #[non_exhaustive]
    Overruled {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
        /// What would have become of the job.
        outcome: JournalEvent,
    },
    /// A job was given back without a failure.
    #[non_exhaustive]
    Released {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
        /// Why, in one word or a few.
        reason: &'static str,
    },
    /// A lease had run out: its worker is presumed dead.
    #[non_exhaustive]
    Recovered {
        /// The job.
        job: JobId,
        /// Its kind.
        kind: Cow<'static, str>,
        /// What it is now: pending, to run again; dead, as the backstop allows no more failures; or cancelled, as
        /// somebody had asked for.
        status: JobStatus,
    },
    /// Something of a run could not be stored as its handler wanted.
    #[non_exhaustive]
    Degraded {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// What.
        what: String,
    },
    /// The server refused a statement, which is sent again.
    #[non_exhaustive]
    StatementFailed {
        /// Its name.
        statement: &'static str,
        /// What the server said.
        error: String,
        /// How long until it is sent again.
        retry_in: Duration,
    },
    /// A connection was lost, or could not be made; it is made again.
    #[non_exhaustive]
    LinkLost {
        /// Which: `work`, `watch`, …
        link: &'static str,
        /// Why.
        error: String,
        /// How long until it is tried again.
        retry_in: Duration,
    },
    /// A connection was made.
    #[non_exhaustive]
    LinkUp {
        /// Which.
        link: &'static str,
    },
    /// The spawner of an async worker dropped a run before it ended.
    #[non_exhaustive]
    SpawnerLost {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
    },
    /// A row was claimed for this worker, which never heard of it; it is released.
    #[non_exhaustive]
    Orphan {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
    },
    /// A stopping worker has come to its next state; see [`ShutdownReport`](crate::ShutdownReport).
    #[non_exhaustive]
    ShutdownState {
        /// `draining`, `forced`, `grace`, `waiting_for_thread` or `stopped`.
        state: &'static str,
        /// How many futures are still going.
        asynchronous: usize,
        /// How many blocking handlers are.
        blocking: usize,
    },
    /// A stopped worker could neither settle nor release a job, which waits for its lease to run out.
    #[non_exhaustive]
    LeftClaimed {
        /// The job.
        job: JobId,
        /// Which run of it.
        run: u32,
        /// Its kind.
        kind: &'static str,
        /// Why, in words.
        reason: &'static str,
    },
    /// The observers were too slow, and events were not told.
    #[non_exhaustive]
    Missed {
        /// How many, since the last event that was.
        events: u64,
    },
}

impl Event {
    /// Writes the event's line: the message for people, the same facts as key-values for programs.
    pub(crate) fn log(&self, worker: Option<&str>) {
        let level = self.level();
        if level > log::STATIC_MAX_LEVEL || level > log::max_level() {
            return;
        }
        let facts = Facts { worker, event: self };
        log::logger().log(
            &Record::builder()
                .level(level)
                .target(TARGET)
                .module_path_static(Some(module_path!()))
                .args(format_args!("{self}"))
                .key_values(&facts)
                .build(),
        );
    }

    /// Debug for what every job does, info for what an operator did, warn for what an operator should know.
    pub(crate) fn level(&self) -> Level {
        match self {
            Self::Claimed { .. }
            | Self::Enqueued { .. }
            | Self::Merged { .. }
            | Self::Started { .. }
            | Self::Settled { .. } => Level::Debug,
            Self::WorkerStarted { .. } | Self::LinkUp { .. } | Self::ShutdownState { .. } => Level::Info,
            // A job that a stopping worker had claimed and not begun is an ordinary part of stopping.
            Self::Released { reason, .. } if *reason != "shutdown_timeout" => Level::Info,
            Self::ClaimLost { .. }
            | Self::LateResult { .. }
            | Self::Overruled { .. }
            | Self::Released { .. }
            | Self::Recovered { .. }
            | Self::Degraded { .. }
            | Self::StatementFailed { .. }
            | Self::LinkLost { .. }
            | Self::SpawnerLost { .. }
            | Self::Orphan { .. }
            | Self::LeftClaimed { .. }
            | Self::Missed { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerStarted { worker } => write!(f, "worker {worker} started"),
            Self::Claimed { count } => write!(f, "claimed {count} jobs"),
            Self::Enqueued { job, kind } => write!(f, "job {job} ({}) enqueued", OneLine(kind)),
            Self::Merged { job, kind, effect } => {
                write!(f, "a task became part of job {job} ({}), which was {}", OneLine(kind), effect.as_str())
            }
            Self::Started { job, run, kind, waited } => {
                write!(f, "job {job} ({kind}), run {run}: started, was due for {waited:.1?}")
            }
            Self::Settled { job, run, kind, outcome, ran } => {
                write!(f, "job {job} ({kind}), run {run}: {outcome} after {ran:.1?}")
            }
            Self::Missed { events } => write!(f, "the observers are too slow, {events} events were not told"),
            Self::ClaimLost { job, run, kind } => {
                write!(f, "job {job} ({kind}), run {run}: its claim is lost, the run is cancelled")
            }
            Self::LateResult { job, run, kind } => {
                write!(
                    f,
                    "job {job} ({kind}), run {run}: its result came after the time-out was stored or the claim was lost, and is discarded"
                )
            }
            Self::Overruled { job, run, kind, outcome } => {
                write!(
                    f,
                    "job {job} ({kind}), run {run}: its handler had completed it, what came after ({outcome}) is discarded"
                )
            }
            Self::Released { job, run, kind, reason } => write!(f, "job {job} ({kind}), run {run}: released, {reason}"),
            Self::Recovered { job, kind, status } => {
                let fate = match status {
                    JobStatus::Pending => "put back",
                    JobStatus::Dead => "dead at the backstop",
                    other => other.as_str(),
                };
                write!(f, "job {job} ({}): its lease had expired, {fate}", OneLine(kind))
            }
            Self::Degraded { job, run, what } => write!(f, "job {job}, run {run}: {}", OneLine(what)),
            Self::StatementFailed { statement, error, retry_in } => {
                write!(f, "{statement} failed, next try {}: {}", Soon(*retry_in), OneLine(error))
            }
            Self::LinkLost { link, error, retry_in } => {
                write!(f, "the {link} connection is lost, next try {}: {}", Soon(*retry_in), OneLine(error))
            }
            Self::LinkUp { link } => write!(f, "the {link} connection is up"),
            Self::SpawnerLost { job, run, kind } => {
                write!(f, "job {job} ({kind}), run {run}: the spawner dropped it before it ended")
            }
            Self::Orphan { job, run } => {
                write!(f, "job {job}, run {run}: claimed for this worker, which never heard of it; released")
            }
            Self::ShutdownState { state, asynchronous, blocking } => {
                write!(f, "shutdown: {state}, {asynchronous} async and {blocking} blocking handlers in flight")
            }
            Self::LeftClaimed { job, run, kind, reason } => {
                write!(f, "job {job} ({kind}), run {run}: left claimed until its lease expires, {reason}")
            }
        }
    }
}

/// When something is tried again.
struct Soon(Duration);

impl fmt::Display for Soon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("at once") } else { write!(f, "in {:.1?}", self.0) }
    }
}

/// Text from the database or the user, which must not be able to forge a line of the log.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split(char::is_control).enumerate().try_for_each(|(nth, part)| {
            f.write_str(if nth == 0 { "" } else { " " })?;
            f.write_str(part)
        })
    }
}

/// An event's key-values.
pub(crate) struct Facts<'a> {
    worker: Option<&'a str>,
    event: &'a Event,
}

#[cfg(feature = "tracing")]
impl<'a> Facts<'a> {
    pub(crate) fn new(observed: &Observed<'a>) -> Self {
        Self { worker: observed.worker, event: observed.event }
    }
}

impl Source for Facts<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), kv::Error> {
        let mut pair = |key: &'static str, value: Option<Value<'kvs>>| match value {
            Some(value) => visitor.visit_pair(Key::from_str(key), value),
            None => Ok(()),
        };
        let event = self.event;
        pair("event", Some(event.name().into()))?;
        pair("worker", self.worker.map(Value::from))?;
        pair("job", event.job().map(|job| job.get().into()))?;
        pair("run", event.run().map(Value::from))?;
        pair("kind", event.kind().map(Value::from))?;
        match event {
            Event::Claimed { count } => pair("count", Some((*count).into())),
            Event::Merged { effect, .. } => pair("effect", Some(effect.as_str().into())),
            Event::Started { waited, .. } => pair("waited_seconds", Some(waited.as_secs_f64().into())),
            Event::Settled { outcome, ran, .. } => {
                pair("outcome", Some(outcome.as_str().into()))?;
                pair("ran_seconds", Some(ran.as_secs_f64().into()))
            }
            Event::Overruled { outcome, .. } => pair("outcome", Some(outcome.as_str().into())),
            Event::Released { reason, .. } | Event::LeftClaimed { reason, .. } => {
                pair("reason", Some((*reason).into()))
            }
            Event::Recovered { status, .. } => pair("status", Some(status.as_str().into())),
            Event::Degraded { what, .. } => pair("what", Some(what.as_str().into())),
            Event::StatementFailed { statement: name, error, retry_in }
            | Event::LinkLost { link: name, error, retry_in } => {
                pair(if matches!(event, Event::LinkLost { .. }) { "link" } else { "statement" }, Some((*name).into()))?;
                pair("error", Some(error.as_str().into()))?;
                pair("retry_in_seconds", Some(retry_in.as_secs_f64().into()))
            }
            Event::LinkUp { link } => pair("link", Some((*link).into())),
            Event::ShutdownState { state, asynchronous, blocking } => {
                pair("state", Some((*state).into()))?;
                pair("async", Some((*asynchronous).into()))?;
                pair("blocking", Some((*blocking).into()))
            }
            Event::Missed { events } => pair("events", Some((*events).into())),
            Event::WorkerStarted { worker } if self.worker.is_none() => pair("worker", Some(worker.as_str().into())),
            _ => Ok(()),
        }
    }
}

impl Event {
    /// The job that it is about.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Enqueued { job, .. }
            | Self::Merged { job, .. }
            | Self::Started { job, .. }
            | Self::Settled { job, .. }
            | Self::ClaimLost { job, .. }
            | Self::LateResult { job, .. }
            | Self::Overruled { job, .. }
            | Self::Released { job, .. }
            | Self::Recovered { job, .. }
            | Self::Degraded { job, .. }
            | Self::SpawnerLost { job, .. }
            | Self::Orphan { job, .. }
            | Self::LeftClaimed { job, .. } => Some(*job),
            _ => None,
        }
    }

    /// The run that it is about.
    #[must_use]
    pub fn run(&self) -> Option<u32> {
        match self {
            Self::Started { run, .. }
            | Self::Settled { run, .. }
            | Self::ClaimLost { run, .. }
            | Self::LateResult { run, .. }
            | Self::Overruled { run, .. }
            | Self::Released { run, .. }
            | Self::Degraded { run, .. }
            | Self::SpawnerLost { run, .. }
            | Self::Orphan { run, .. }
            | Self::LeftClaimed { run, .. } => Some(*run),
            _ => None,
        }
    }

    /// The kind of the job that it is about.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Enqueued { kind, .. } | Self::Merged { kind, .. } | Self::Recovered { kind, .. } => Some(kind),
            Self::Started { kind, .. }
            | Self::Settled { kind, .. }
            | Self::ClaimLost { kind, .. }
            | Self::LateResult { kind, .. }
            | Self::Overruled { kind, .. }
            | Self::Released { kind, .. }
            | Self::SpawnerLost { kind, .. }
            | Self::LeftClaimed { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// Its name, as the log's key-value `event` has it: `settled`, `claim_lost`, and so on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::WorkerStarted { .. } => "worker_started",
            Self::Enqueued { .. } => "enqueued",
            Self::Merged { .. } => "merged",
            Self::Started { .. } => "started",
            Self::Missed { .. } => "missed",
            Self::Claimed { .. } => "claimed",
            Self::Settled { .. } => "settled",
            Self::ClaimLost { .. } => "claim_lost",
            Self::LateResult { .. } => "late_result",
            Self::Overruled { .. } => "overruled",
            Self::Released { .. } => "released",
            Self::Recovered { .. } => "recovered",
            Self::Degraded { .. } => "degraded",
            Self::StatementFailed { .. } => "statement_failed",
            Self::LinkLost { .. } => "link_lost",
            Self::LinkUp { .. } => "link_up",
            Self::SpawnerLost { .. } => "spawner_lost",
            Self::Orphan { .. } => "orphan",
            Self::ShutdownState { .. } => "shutdown_state",
            Self::LeftClaimed { .. } => "left_claimed",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Pairs(BTreeMap<String, String>);

    impl<'kvs> VisitSource<'kvs> for Pairs {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
            let before = self.0.insert(key.to_string(), value.to_string());
            assert_eq!(before, None, "{key} twice");
            Ok(())
        }
    }

    fn pairs(event: &Event) -> BTreeMap<String, String> {
        let mut pairs = Pairs::default();
        Facts { worker: None, event }.visit(&mut pairs).unwrap();
        pairs.0
    }

    fn keys(event: &Event) -> String {
        pairs(event).into_keys().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn one_of_each() -> Vec<Event> {
        let (job, run, kind, retry_in) = (JobId(7), 2, "resize", Duration::from_millis(150));
        vec![
            Event::WorkerStarted { worker: "host:1:00000001".to_owned() },
            Event::Claimed { count: 3 },
            Event::Enqueued { job, kind: kind.into() },
            Event::Merged { job, kind: kind.into(), effect: Effect::Kept },
            Event::Started { job, run, kind, waited: retry_in },
            Event::Missed { events: 5 },
            Event::Settled { job, run, kind, outcome: JournalEvent::Completed, ran: retry_in },
            Event::ClaimLost { job, run, kind },
            Event::LateResult { job, run, kind },
            Event::Overruled { job, run, kind, outcome: JournalEvent::Retried },
            Event::Released { job, run, kind, reason: "shutdown_timeout" },
            Event::Recovered { job, kind: "resize".into(), status: JobStatus::Pending },
            Event::Degraded { job, run, what: "the carry was not stored".to_owned() },
            Event::StatementFailed { statement: "claim", error: "disk full".to_owned(), retry_in },
            Event::LinkLost { link: "work", error: "closed".to_owned(), retry_in },
            Event::LinkUp { link: "work" },
            Event::SpawnerLost { job, run, kind },
            Event::Orphan { job, run },
            Event::ShutdownState { state: "draining", asynchronous: 1, blocking: 2 },
            Event::LeftClaimed { job, run, kind, reason: "not stopped" },
        ]
    }

    #[test]
    fn each_event_has_one_line_and_its_own_name() {
        let events = one_of_each();
        let mut names: Vec<String> = events.iter().map(|event| pairs(event).remove("event").unwrap()).collect();
        for event in &events {
            let line = event.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line}");
            event.log(Some("here"));
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), events.len());
    }

    #[test]
    fn the_facts_of_an_event_are_key_values() {
        let settled = Event::Settled {
            job: JobId(7),
            run: 2,
            kind: "resize",
            outcome: JournalEvent::Retried,
            ran: Duration::from_millis(150),
        };
        assert_eq!(keys(&settled), "event job kind outcome ran_seconds run");
        assert_eq!(pairs(&settled)["outcome"], "retried");
        assert_eq!(pairs(&settled)["job"], "7");
        let lost = Event::LinkLost { link: "watch", error: "closed".to_owned(), retry_in: Duration::from_millis(150) };
        assert_eq!(keys(&lost), "error event link retry_in_seconds");
        assert_eq!(pairs(&lost)["retry_in_seconds"], "0.15");
        let left = Event::LeftClaimed { job: JobId(7), run: 2, kind: "resize", reason: "not stopped" };
        assert_eq!(keys(&left), "event job kind reason run");
    }

    #[test]
    fn what_each_job_does_is_debug_and_what_needs_a_look_is_a_warning() {
        let levels: Vec<Level> = one_of_each().iter().map(Event::level).collect();
        let count = |level| levels.iter().filter(|it| **it == level).count();
        assert_eq!((count(Level::Debug), count(Level::Info), count(Level::Warn)), (5, 3, 12));
    }

    #[test]
    fn a_message_says_what_a_reader_needs_without_the_key_values() {
        let failed = Event::StatementFailed {
            statement: "claim",
            error: "disk full".to_owned(),
            retry_in: Duration::from_millis(150),
        };
        assert_eq!(failed.to_string(), "claim failed, next try in 150.0ms: disk full");
        let refused = Event::StatementFailed { statement: "settle", error: "no".to_owned(), retry_in: Duration::ZERO };
        assert_eq!(refused.to_string(), "settle failed, next try at once: no");
        let told = |status| Event::Recovered { job: JobId(7), kind: "a\nb".into(), status }.to_string();
        assert_eq!(told(JobStatus::Dead), "job 7 (a b): its lease had expired, dead at the backstop");
        assert_eq!(told(JobStatus::Cancelled), "job 7 (a b): its lease had expired, cancelled");
    }
}
