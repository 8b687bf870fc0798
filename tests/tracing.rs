//! Spans around runs, as a subscriber sees them, in both front-ends.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cluster;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use venturi::testing::TestSchema;
use venturi::{CancellationToken, Database, Outcome, PanicPolicy, Priority, Submit, Task, TaskError, Tracing};

type Fields = BTreeMap<String, String>;

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// What was seen: what handlers said, with the job in whose span they did; and the spans that are over.
#[derive(Default)]
struct Seen {
    said: Mutex<Vec<(String, Option<String>)>>,
    spans: Mutex<Vec<Fields>>,
}

static SEEN: LazyLock<Arc<Seen>> = LazyLock::new(|| {
    let seen = Arc::new(Seen::default());
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Watch(Arc::clone(&seen))))
        .expect("the only one");
    seen
});

struct Watch(Arc<Seen>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watch {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Into(&mut fields));
        let parent = context.span(id).and_then(|span| span.parent()).map(|span| span.name().to_owned());
        fields.extend(parent.map(|name| ("parent".to_owned(), name)));
        context.span(id).expect("it is new").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(fields) = context.span(id).expect("it is there").extensions_mut().get_mut::<Fields>() {
            values.record(&mut Into(fields));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() == "work" {
            let mut fields = Fields::new();
            event.record(&mut Into(&mut fields));
            let job = context
                .event_span(event)
                .and_then(|span| span.extensions().get::<Fields>().and_then(|fields| fields.get("job").cloned()));
            self.0.said.lock().expect("whole").push((fields["message"].clone(), job));
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let fields = context.span(&id).and_then(|span| span.extensions_mut().remove::<Fields>());
        self.0.spans.lock().expect("whole").extend(fields);
    }
}

#[derive(Serialize, Deserialize)]
struct Work {
    tag: String,
    ending: String,
}

impl Task for Work {
    const KIND: &'static str = "work";
    type Carry = ();

    fn priority(&self) -> Priority {
        Priority::High
    }
}

/// Where the runs of a test meet, so that all of them are going at the same time.
struct Meeting {
    expected: usize,
    came: AtomicUsize,
    begun: CancellationToken,
}

impl Meeting {
    fn of(expected: usize) -> Arc<Self> {
        Arc::new(Self { expected, came: AtomicUsize::new(0), begun: CancellationToken::new() })
    }

    fn come(&self) {
        if self.came.fetch_add(1, Ordering::SeqCst) + 1 == self.expected {
            self.begun.cancel();
        }
    }
}

impl Work {
    fn say(&self, what: &str) {
        tracing::info!(target: "work", "{} {what}", self.tag);
    }

    fn end(&self) -> Result<Outcome, TaskError> {
        match self.ending.as_str() {
            "fails" => Err(TaskError::permanent("no luck")),
            "panics" => panic!("at once"),
            _ => Ok(Outcome::completed()),
        }
    }
}

/// Says so when it is dropped.
struct Farewell<'a>(&'a Work);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        self.0.say("is gone");
    }
}

impl venturi::blocking::Handler<Arc<Meeting>> for Work {
    fn handle(&self, _: &mut venturi::Context<()>, meeting: &Arc<Meeting>) -> Result<Outcome, TaskError> {
        let _farewell = Farewell(self);
        self.say("begins");
        meeting.come();
        meeting.begun.wait();
        self.say("goes on");
        self.end()
    }
}

impl venturi::r#async::Handler<Arc<Meeting>> for Work {
    async fn handle(&self, _: &mut venturi::Context<()>, meeting: &Arc<Meeting>) -> Result<Outcome, TaskError> {
        let _farewell = Farewell(self);
        self.say("begins");
        meeting.come();
        meeting.begun.cancelled().await;
        self.say("goes on");
        self.end()
    }
}

const ENDINGS: [&str; 4] = ["well", "fails", "panics", "also well"];

/// Runs a job for each ending, all at once, and looks at what was seen.
fn check(name: &str, drain: impl FnOnce(Database, Arc<Meeting>)) {
    let seen = Arc::clone(&SEEN);
    let url = cluster::shared_url().expect("a server");
    let schema = TestSchema::within(&Database::new(&url).expect("a DSN")).expect("a schema");
    let queue = venturi::blocking::Queue::connect(&schema.database()).expect("a queue");
    let tag = |ending: &str| format!("{name}, {ending}:");
    let ids = ENDINGS.map(|ending| {
        let work = Work { tag: tag(ending), ending: ending.to_owned() };
        queue.enqueue(Submit::new(&work)).expect("enqueued").id.to_string()
    });
    // A worker's runs are no part of what it was started in.
    tracing::info_span!("start").in_scope(|| drain(schema.database(), Meeting::of(ENDINGS.len())));
    let said = seen.said.lock().expect("whole").clone();
    for (ending, id) in ENDINGS.iter().zip(&ids) {
        let own: Vec<_> = said.iter().filter(|(text, _)| text.starts_with(&tag(ending))).collect();
        let expected =
            ["begins", "goes on", "is gone"].map(|what| (format!("{} {what}", tag(ending)), Some(id.clone())));
        assert_eq!(own, expected.iter().collect::<Vec<_>>(), "{name}");
    }
    let spans = seen.spans.lock().expect("whole");
    let worker = spans.iter().find(|span| span.get("worker").is_some_and(|it| it.starts_with(&format!("{name}:"))));
    let worker = worker.expect("a span of the worker")["worker"].clone();
    let mut own: Vec<_> = spans.iter().filter(|span| span.get("worker") == Some(&worker)).collect();
    own.sort_by_key(|span| span["job"].parse::<i64>().expect("a number"));
    let ends = [
        ("completed", None),
        ("failed", Some("no luck")),
        ("panicked", Some("panicked: at once")),
        ("completed", None),
    ];
    assert_eq!(own.len(), ends.len(), "{name}: {own:?}");
    for ((span, id), (outcome, error)) in own.into_iter().zip(&ids).zip(ends) {
        let field = |key: &str| span.get(key).map(String::as_str);
        assert_eq!((field("kind"), field("job"), field("run")), (Some("work"), Some(id.as_str()), Some("1")));
        assert_eq!((field("priority"), field("parent")), (Some("high"), None));
        assert_eq!((field("outcome"), field("error")), (Some(outcome), error), "{name}");
        assert_eq!(field("otel.status_code"), error.map(|_| "ERROR"));
    }
    assert!(tracing::Span::current().is_none(), "{name}: a span was left open");
}

macro_rules! configured {
    ($builder:expr, $name:expr) => {
        $builder.claimed_by($name).concurrency(ENDINGS.len()).panic_policy(PanicPolicy::Dead).jitter(0.0)
    };
}

#[test]
fn a_thread_runs_its_handler_inside_the_runs_span() {
    check("threads", |database, meeting| {
        let builder = venturi::blocking::Worker::builder(meeting).database(database).register::<Work>();
        let worker = configured!(builder, "threads").middleware(Tracing::new()).build().expect("a worker");
        worker.drain().expect("it ends");
    });
}

#[test]
fn futures_that_take_turns_on_a_thread_are_each_inside_their_own_runs_span() {
    check("futures", |database, meeting| {
        let builder = venturi::r#async::Worker::builder(meeting).database(database).register::<Work>();
        let worker = configured!(builder, "futures").middleware(Tracing::new()).build().expect("a worker");
        futures_lite::future::block_on(worker.drain()).expect("it ends");
    });
}

#[test]
fn futures_on_an_executors_threads_are_each_inside_their_own_runs_span() {
    check("spawned", |database, meeting| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("one");
        let builder = venturi::r#async::Worker::builder(meeting).database(database).register::<Work>();
        let builder = configured!(builder, "spawned").middleware(Tracing::new());
        let worker = builder.spawner(|run| drop(tokio::spawn(run))).build().expect("a worker");
        runtime.block_on(worker.drain()).expect("it ends");
    });
}

#[test]
fn blocking_handlers_of_an_async_worker_are_inside_their_runs_span() {
    check("mixed", |database, meeting| {
        let builder = venturi::r#async::Worker::builder(meeting).database(database).register_blocking::<Work>();
        let worker = configured!(builder, "mixed").blocking_middleware(Tracing::new()).build().expect("a worker");
        futures_lite::future::block_on(worker.drain()).expect("it ends");
    });
}

#[test]
fn what_is_called_before_a_span_begins_may_panic() {
    check("started", |database, meeting| {
        let tracing = Tracing::new().on_start(|span, run| {
            assert!(!span.is_disabled() && tracing::Span::current().id() != span.id() && run.kind() == "work");
            panic!("who starts spans");
        });
        let builder = venturi::blocking::Worker::builder(meeting).database(database).register::<Work>();
        let worker = configured!(builder, "started").middleware(tracing).build().expect("a worker");
        worker.drain().expect("it ends");
    });
}
