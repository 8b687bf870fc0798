//! Events as metrics, through the `metrics` facade.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::{Event, JobId, JournalEvent, Observed, Observer};

const ENQUEUED: &str = "venturi_jobs_enqueued_total";
const MERGED: &str = "venturi_jobs_merged_total";
const CLAIMED: &str = "venturi_jobs_claimed_total";
const RECOVERED: &str = "venturi_jobs_recovered_total";
const STARTED: &str = "venturi_runs_started_total";
const SETTLED: &str = "venturi_runs_settled_total";
const RELEASED: &str = "venturi_runs_released_total";
const WAIT: &str = "venturi_wait_seconds";
const RUN: &str = "venturi_run_seconds";
const GOING: &str = "venturi_runs";
const WORKERS: &str = "venturi_workers";
const INCIDENTS: &str = "venturi_incidents_total";
const REFUSED: &str = "venturi_statements_failed_total";
const LOST_LINKS: &str = "venturi_connections_lost_total";
const MISSED: &str = "venturi_events_missed_total";

/// What a recorder is told of each; docs/observability.md has the same with the labels.
const COUNTERS: &[(&str, &str)] = &[
    (ENQUEUED, "Jobs that queues of this process have stored."),
    (MERGED, "Tasks that became part of a pending job."),
    (CLAIMED, "Jobs that workers have claimed."),
    (RECOVERED, "Jobs whose lease had run out."),
    (STARTED, "Runs that were handed to their handlers."),
    (SETTLED, "Runs whose result was stored."),
    (RELEASED, "Jobs that were given back without a failure."),
    (INCIDENTS, "What should not happen, by the event's name."),
    (REFUSED, "Statements that the server refused."),
    (LOST_LINKS, "Connections that were lost or could not be made."),
    (MISSED, "Events that were not told, since observers were too slow."),
];
const HISTOGRAMS: &[(&str, &str)] = &[
    (WAIT, "From when a job was due until it was claimed, by the database's clock."),
    (RUN, "From handing a job to its handler until that ended."),
];
const GAUGES: &[(&str, &str)] =
    &[(GOING, "Runs that have started and are not settled."), (WORKERS, "Workers that have started and not stopped.")];

/// Turns events into metrics of the `metrics` facade, for whatever recorder the application has installed.
///
/// Give one to [`observer`](Observer) of the builders of workers and queues. The names, with types and labels, are listed
/// in `docs/observability.md`; labels are kinds, outcomes and other words of which there are few, never numbers of jobs or
/// names of workers.
///
/// Without a recorder nothing is counted. With one, some hundred nanoseconds per event are spent on the observers' thread.
///
/// ```
/// use venturi::Metrics;
///
/// // First the recorder, for example that of metrics-exporter-prometheus; then:
/// let metrics = Metrics::new();
/// // Worker::builder(app).observer(metrics), and another one for Queue::builder(&database).observer(Metrics::new())
/// # fn observer(_: impl venturi::Observer) {}
/// # observer(metrics);
/// ```
#[derive(Debug, Default)]
pub struct Metrics {
    /// What the gauges count, so that nothing is taken off them twice.
    going: Mutex<Going>,
}

/// The runs of each worker, with their kinds.
type Going = BTreeMap<String, BTreeMap<(JobId, u32), &'static str>>;

impl Metrics {
    /// One that tells the recorder, which has to be there already, what each metric means.
    #[must_use]
    pub fn new() -> Self {
        COUNTERS.iter().for_each(|(name, help)| describe_counter!(*name, Unit::Count, *help));
        HISTOGRAMS.iter().for_each(|(name, help)| describe_histogram!(*name, Unit::Seconds, *help));
        GAUGES.iter().for_each(|(name, help)| describe_gauge!(*name, Unit::Count, *help));
        Self::default()
    }

    fn going(&self) -> MutexGuard<'_, Going> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker_started(&self, worker: &str) {
        if self.going().insert(worker.to_owned(), BTreeMap::new()).is_none() {
            gauge!(WORKERS).increment(1.0);
        }
    }

    fn worker_stopped(&self, worker: &str) {
        self.forget_runs(worker);
        if self.going().remove(worker).is_some() {
            gauge!(WORKERS).decrement(1.0);
        }
    }

    fn run_started(&self, worker: &str, run: (JobId, u32), kind: &'static str) {
        counter!(STARTED, "kind" => kind).increment(1);
        if self.going().get_mut(worker).is_some_and(|runs| runs.insert(run, kind).is_none()) {
            gauge!(GOING, "kind" => kind).increment(1.0);
        }
    }

    fn run_ended(&self, worker: &str, run: (JobId, u32)) {
        if let Some(kind) = self.going().get_mut(worker).and_then(|runs| runs.remove(&run)) {
            gauge!(GOING, "kind" => kind).decrement(1.0);
        }
    }

    fn forget_runs(&self, worker: &str) {
        let runs = self.going().get_mut(worker).map(std::mem::take).unwrap_or_default();
        let kinds: BTreeSet<&str> = runs.values().copied().collect();
        for kind in kinds {
            let count = u32::try_from(runs.values().filter(|it| **it == kind).count()).unwrap_or(u32::MAX);
            gauge!(GOING, "kind" => kind).decrement(f64::from(count));
        }
    }

    /// What an event means for the gauges.
    fn gauge(&self, worker: &str, event: &Event) {
        match event {
            Event::WorkerStarted { .. } => self.worker_started(worker),
            Event::ShutdownState { state: "stopped", .. } => self.worker_stopped(worker),
            // The ends of some runs may be among them, which would then be counted for ever.
            Event::Missed { .. } => self.forget_runs(worker),
            Event::Settled { job, run, .. }
            | Event::Released { job, run, .. }
            | Event::ClaimLost { job, run, .. }
            | Event::LeftClaimed { job, run, .. } => self.run_ended(worker, (*job, *run)),
            _ => {}
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, observed: &Observed<'_>) {
        let worker = observed.worker.unwrap_or_default();
        self.gauge(worker, observed.event);
        match observed.event {
            Event::Enqueued { kind, .. } => counter!(ENQUEUED, "kind" => kind.to_string()).increment(1),
            Event::Merged { kind, effect, .. } => {
                counter!(MERGED, "kind" => kind.to_string(), "effect" => effect.as_str()).increment(1);
            }
            Event::Claimed { count } => counter!(CLAIMED).increment(*count as u64),
            Event::Started { job, run, kind, waited } => {
                self.run_started(worker, (*job, *run), kind);
                histogram!(WAIT, "kind" => *kind).record(*waited);
            }
            Event::Settled { kind, outcome, ran, .. } => settled(kind, *outcome, *ran),
            Event::Released { kind, reason, .. } => {
                counter!(RELEASED, "kind" => *kind, "reason" => *reason).increment(1);
            }
            Event::Recovered { kind, status, .. } => {
                counter!(RECOVERED, "kind" => kind.to_string(), "status" => status.as_str()).increment(1);
            }
            Event::StatementFailed { statement, .. } => counter!(REFUSED, "statement" => *statement).increment(1),
            Event::LinkLost { link, .. } => counter!(LOST_LINKS, "link" => *link).increment(1),
            Event::Missed { events } => counter!(MISSED).increment(*events),
            Event::ClaimLost { .. }
            | Event::LateResult { .. }
            | Event::Overruled { .. }
            | Event::Degraded { .. }
            | Event::SpawnerLost { .. }
            | Event::Orphan { .. }
            | Event::LeftClaimed { .. } => counter!(INCIDENTS, "event" => observed.event.name()).increment(1),
            Event::WorkerStarted { .. } | Event::LinkUp { .. } | Event::ShutdownState { .. } => {}
        }
    }
}

fn settled(kind: &'static str, outcome: JournalEvent, ran: Duration) {
    counter!(SETTLED, "kind" => kind, "outcome" => outcome.as_str()).increment(1);
    histogram!(RUN, "kind" => kind, "outcome" => outcome.as_str()).record(ran);
}

#[cfg(test)]
mod tests;
