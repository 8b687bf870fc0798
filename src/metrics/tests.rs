use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
    with_local_recorder,
};

use super::*;
use crate::observer::tests::one_of_each;

/// What a metric is, with the names of its labels, as a row of the page has it.
type Row = (String, &'static str, Vec<String>);

/// Keeps what it is told.
#[derive(Default)]
struct Ledger {
    described: Mutex<BTreeSet<(String, &'static str)>>,
    rows: Mutex<BTreeSet<Row>>,
    values: Arc<Mutex<BTreeMap<String, f64>>>,
}

/// One metric with its labels.
struct Account(Arc<Mutex<BTreeMap<String, f64>>>, String);

impl Account {
    fn change(&self, change: impl Fn(f64) -> f64) {
        let mut values = self.0.lock().unwrap();
        let value = values.entry(self.1.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Account {
    fn increment(&self, value: u64) {
        self.change(|it| it + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for Account {
    fn increment(&self, value: f64) {
        self.change(|it| it + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|it| it - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Account {
    fn record(&self, value: f64) {
        self.change(|it| it + value);
    }
}

impl Ledger {
    fn account(&self, key: &Key, shape: &'static str) -> Arc<Account> {
        let labels = key.labels().map(|label| label.key().to_owned()).collect();
        self.rows.lock().unwrap().insert((key.name().to_owned(), shape, labels));
        let values: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Account(Arc::clone(&self.values), format!("{} {}", key.name(), values.join(" "))))
    }

    fn describe(&self, name: &KeyName, shape: &'static str) {
        self.described.lock().unwrap().insert((name.as_str().to_owned(), shape));
    }

    fn value(&self, name: &str) -> f64 {
        self.values.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name, "counter");
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name, "gauge");
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name, "histogram");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.account(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.account(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.account(key, "histogram"))
    }
}

const WORKER: &str = "host:1:00000001";

fn told(events: &[Event]) -> Ledger {
    let ledger = Ledger::default();
    with_local_recorder(&ledger, || {
        let metrics = Metrics::new();
        events.iter().for_each(|event| metrics.observe(&Observed::new(Some(WORKER), event)));
    });
    ledger
}

/// The rows of the page's table of metrics.
fn documented() -> BTreeSet<Row> {
    let page = include_str!("../../docs/observability.md");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, shape, labels, _meaning, _] = cells[..] else { panic!("{line}") };
        let shape = ["counter", "gauge", "histogram"].into_iter().find(|it| *it == shape).unwrap();
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (name.trim_matches('`').to_owned(), shape, labels)
    };
    page.lines().filter(|line| line.starts_with("| `venturi_")).map(row).collect()
}

#[test]
fn the_page_lists_every_metric_with_its_labels_and_no_other() {
    let mut events = one_of_each();
    events.push(Event::ShutdownState { state: "stopped", asynchronous: 0, blocking: 0 });
    let ledger = told(&events);
    let emitted = ledger.rows.into_inner().unwrap();
    assert_eq!(documented(), emitted);
    let described = ledger.described.into_inner().unwrap();
    assert_eq!(described, emitted.into_iter().map(|(name, shape, _)| (name, shape)).collect());
}

fn started(job: i64) -> Event {
    Event::Started { job: JobId(job), run: 1, kind: "resize", waited: Duration::from_millis(250) }
}

fn ended(job: i64, outcome: JournalEvent) -> Event {
    Event::Settled { job: JobId(job), run: 1, kind: "resize", outcome, ran: Duration::from_millis(1_500) }
}

fn began() -> Event {
    Event::WorkerStarted { worker: WORKER.to_owned() }
}

#[test]
fn each_event_counts_once_and_under_its_own_words() {
    let retried = JournalEvent::Retried;
    let ledger = told(&[
        began(),
        Event::Claimed { count: 3 },
        started(1),
        started(2),
        ended(1, JournalEvent::Completed),
        ended(2, retried),
    ]);
    let value = |name: &str| ledger.value(name);
    assert_eq!((value("venturi_jobs_claimed_total "), value("venturi_runs_started_total kind=resize")), (3.0, 2.0));
    assert_eq!(value("venturi_runs_settled_total kind=resize outcome=completed"), 1.0);
    assert_eq!(value("venturi_runs_settled_total kind=resize outcome=retried"), 1.0);
    assert_eq!(value("venturi_wait_seconds kind=resize"), 0.5);
    assert_eq!(value("venturi_run_seconds kind=resize outcome=completed"), 1.5);
    assert_eq!((value("venturi_runs kind=resize"), value("venturi_workers ")), (0.0, 1.0));
}

#[test]
fn a_gauge_counts_what_is_there_however_it_ended() {
    let (job, run, kind) = (JobId(3), 1, "resize");
    let going = |events: &[Event]| told(events).value("venturi_runs kind=resize");
    let three = [began(), started(1), started(2), started(3)];
    assert_eq!(going(&three), 3.0);
    let with = |more: &[Event]| going(&[&three[..], more].concat());
    assert_eq!(with(&[Event::ClaimLost { job, run, kind }, Event::LateResult { job, run, kind }]), 2.0);
    assert_eq!(with(&[ended(1, JournalEvent::Dead), ended(1, JournalEvent::Dead), ended(4, JournalEvent::Dead)]), 2.0);
    assert_eq!(with(&[Event::Released { job, run, kind, reason: "shutdown_timeout" }]), 2.0);
    assert_eq!(with(&[Event::Missed { events: 2 }, started(4), ended(2, JournalEvent::Dead)]), 1.0);
    let stopped = Event::ShutdownState { state: "stopped", asynchronous: 0, blocking: 1 };
    assert_eq!(with(std::slice::from_ref(&stopped)), 0.0);
    assert_eq!(told(&[began(), stopped]).value("venturi_workers "), 0.0);
}
