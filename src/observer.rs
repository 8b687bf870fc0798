//! What happens inside a worker, as typed events, each with one line in the log.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::Duration;

use log::kv::{self, Key, Source, Value, VisitSource};
use log::{Level, Record};

const TARGET: &str = "venturi";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    WorkerStarted { worker: String },
    Claimed { count: usize },
    Settled { job: i64, run: i32, kind: &'static str, outcome: &'static str },
    ClaimLost { job: i64, run: i32, kind: &'static str },
    LateResult { job: i64, run: i32, kind: &'static str },
    Overruled { job: i64, run: i32, kind: &'static str, outcome: &'static str },
    Released { job: i64, run: i32, kind: &'static str, reason: &'static str },
    Recovered { job: i64, kind: String, dead: bool },
    Degraded { job: i64, what: String },
    StatementFailed { statement: &'static str, error: String, retry_in: Duration },
    LinkLost { link: &'static str, error: String, retry_in: Duration },
    LinkUp { link: &'static str },
    SpawnerLost { job: i64, run: i32, kind: &'static str },
    Orphan { job: i64, run: i32 },
    ShutdownState { state: &'static str, asynchronous: usize, blocking: usize },
    LeftClaimed { job: i64, run: i32, kind: &'static str, reason: &'static str },
}

impl Event {
    /// Writes the event's line: the message for people, the same facts as key-values for programs.
    pub(crate) fn log(&self) {
        let level = self.level();
        if level > log::STATIC_MAX_LEVEL || level > log::max_level() {
            return;
        }
        log::logger().log(
            &Record::builder()
                .level(level)
                .target(TARGET)
                .module_path_static(Some(module_path!()))
                .args(format_args!("{self}"))
                .key_values(self)
                .build(),
        );
    }

    /// Debug for what every job does, info for what an operator did, warn for what an operator should know.
    fn level(&self) -> Level {
        match self {
            Self::Claimed { .. } | Self::Settled { .. } => Level::Debug,
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
            | Self::LeftClaimed { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerStarted { worker } => write!(f, "worker {worker} started"),
            Self::Claimed { count } => write!(f, "claimed {count} jobs"),
            Self::Settled { job, run, kind, outcome } => write!(f, "job {job} ({kind}), run {run}: {outcome}"),
            Self::ClaimLost { job, run, kind } => {
                write!(f, "job {job} ({kind}), run {run}: its claim is lost, the run is cancelled")
            }
            Self::LateResult { job, run, kind } => {
                write!(f, "job {job} ({kind}), run {run}: its result came after the claim was lost and is discarded")
            }
            Self::Overruled { job, run, kind, outcome } => {
                write!(
                    f,
                    "job {job} ({kind}), run {run}: its handler had completed it, what came after ({outcome}) is discarded"
                )
            }
            Self::Released { job, run, kind, reason } => write!(f, "job {job} ({kind}), run {run}: released, {reason}"),
            Self::Recovered { job, kind, dead } => {
                let fate = if *dead { "dead at the backstop" } else { "put back" };
                write!(f, "job {job} ({}): its lease had expired, {fate}", OneLine(kind))
            }
            Self::Degraded { job, what } => write!(f, "job {job}: {}", OneLine(what)),
            Self::StatementFailed { statement, error, retry_in } => {
                write!(f, "{statement} failed, next try in {retry_in:.1?}: {}", OneLine(error))
            }
            Self::LinkLost { link, error, retry_in } => {
                write!(f, "the {link} connection is lost, next try in {retry_in:.1?}: {}", OneLine(error))
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

impl Source for Event {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), kv::Error> {
        let mut pair = |key: &'static str, value: Value<'kvs>| visitor.visit_pair(Key::from_str(key), value);
        pair("event", self.name().into())?;
        match self {
            Self::WorkerStarted { worker } => pair("worker", worker.as_str().into()),
            Self::Claimed { count } => pair("count", (*count).into()),
            Self::Settled { job, run, kind, outcome: word }
            | Self::Overruled { job, run, kind, outcome: word }
            | Self::Released { job, run, kind, reason: word }
            | Self::LeftClaimed { job, run, kind, reason: word } => {
                pair("job", (*job).into())?;
                pair("run", (*run).into())?;
                pair("kind", (*kind).into())?;
                let is_outcome = matches!(self, Self::Settled { .. } | Self::Overruled { .. });
                pair(if is_outcome { "outcome" } else { "reason" }, (*word).into())
            }
            Self::ClaimLost { job, run, kind }
            | Self::LateResult { job, run, kind }
            | Self::SpawnerLost { job, run, kind } => {
                pair("job", (*job).into())?;
                pair("run", (*run).into())?;
                pair("kind", (*kind).into())
            }
            Self::Recovered { job, kind, dead } => {
                pair("job", (*job).into())?;
                pair("kind", kind.as_str().into())?;
                pair("dead", (*dead).into())
            }
            Self::Degraded { job, what } => {
                pair("job", (*job).into())?;
                pair("what", what.as_str().into())
            }
            Self::StatementFailed { statement: name, error, retry_in }
            | Self::LinkLost { link: name, error, retry_in } => {
                pair(if matches!(self, Self::LinkLost { .. }) { "link" } else { "statement" }, (*name).into())?;
                pair("error", error.as_str().into())?;
                pair("retry_in_seconds", retry_in.as_secs_f64().into())
            }
            Self::LinkUp { link } => pair("link", (*link).into()),
            Self::Orphan { job, run } => {
                pair("job", (*job).into())?;
                pair("run", (*run).into())
            }
            Self::ShutdownState { state, asynchronous, blocking } => {
                pair("state", (*state).into())?;
                pair("async", (*asynchronous).into())?;
                pair("blocking", (*blocking).into())
            }
        }
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::WorkerStarted { .. } => "worker_started",
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
mod tests {
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
        event.visit(&mut pairs).unwrap();
        pairs.0
    }

    fn keys(event: &Event) -> String {
        pairs(event).into_keys().collect::<Vec<_>>().join(" ")
    }

    fn one_of_each() -> Vec<Event> {
        let (job, run, kind, retry_in) = (7, 2, "resize", Duration::from_millis(150));
        vec![
            Event::WorkerStarted { worker: "host:1:00000001".to_owned() },
            Event::Claimed { count: 3 },
            Event::Settled { job, run, kind, outcome: "completed" },
            Event::ClaimLost { job, run, kind },
            Event::LateResult { job, run, kind },
            Event::Overruled { job, run, kind, outcome: "retried" },
            Event::Released { job, run, kind, reason: "shutdown_timeout" },
            Event::Recovered { job, kind: "resize".to_owned(), dead: false },
            Event::Degraded { job, what: "the carry was not stored".to_owned() },
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
            event.log();
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), events.len());
    }

    #[test]
    fn the_facts_of_an_event_are_key_values() {
        let settled = Event::Settled { job: 7, run: 2, kind: "resize", outcome: "retried" };
        assert_eq!(keys(&settled), "event job kind outcome run");
        assert_eq!(pairs(&settled)["outcome"], "retried");
        assert_eq!(pairs(&settled)["job"], "7");
        let lost = Event::LinkLost { link: "watch", error: "closed".to_owned(), retry_in: Duration::from_millis(150) };
        assert_eq!(keys(&lost), "error event link retry_in_seconds");
        assert_eq!(pairs(&lost)["retry_in_seconds"], "0.15");
        let left = Event::LeftClaimed { job: 7, run: 2, kind: "resize", reason: "not stopped" };
        assert_eq!(keys(&left), "event job kind reason run");
    }

    #[test]
    fn what_each_job_does_is_debug_and_what_needs_a_look_is_a_warning() {
        let levels: Vec<Level> = one_of_each().iter().map(Event::level).collect();
        let count = |level| levels.iter().filter(|it| **it == level).count();
        assert_eq!((count(Level::Debug), count(Level::Info), count(Level::Warn)), (2, 3, 11));
    }

    #[test]
    fn a_message_says_what_a_reader_needs_without_the_key_values() {
        let failed = Event::StatementFailed {
            statement: "claim",
            error: "disk full".to_owned(),
            retry_in: Duration::from_millis(150),
        };
        assert_eq!(failed.to_string(), "claim failed, next try in 150.0ms: disk full");
        let dead = Event::Recovered { job: 7, kind: "a\nb".to_owned(), dead: true };
        assert_eq!(dead.to_string(), "job 7 (a b): its lease had expired, dead at the backstop");
    }
}
