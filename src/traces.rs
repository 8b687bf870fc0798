//! Runs as spans and events as events of the `tracing` facade.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use log::Level;
use log::kv::{self, Key, Source, Value, VisitSource};
use tracing::Span;
use tracing::field::Empty;

use crate::notice::notice;
use crate::observer::Facts;
use crate::panic_boundary::guarded;
use crate::{Observed, Observer, Outcome, RunInfo, TaskError};

type OnStart = dyn Fn(&Span, &RunInfo<'_>) + Send + Sync;

/// A span around every run, as a middleware, and the events of workers and queues as tracing events,
/// as an [`Observer`].
///
/// Given to `middleware`, and to `blocking_middleware` of an async worker that has blocking handlers, it lets handlers run
/// inside a span `run` with the target `venturi::run`, the level info, and the fields `kind`, `job`, `run`, `priority`,
/// `worker`; when the handler ends, `outcome` (`completed`, `paused`, `failed`, `panicked`) and `error` are recorded: what
/// the handler said, before anything is stored. What became of the job, the event `settled` tells. A future's
/// span is entered for each poll and for its drop, and never held in between. It has no parent, whatever the span is in
/// which the worker was started; [`on_start`](Self::on_start) may give it one. `otel.name`, `otel.kind` and
/// `otel.status_code` are there for those who hand spans on to OpenTelemetry.
///
/// Given to `observer`, it tells each event as one of the target `venturi::event` with the fields that its line in the log
/// has. The log has them without that, with the target `venturi`; who collects log records as tracing events needs only
/// one of the two.
///
/// A clone is cheap, and does the same.
///
/// ```
/// use venturi::Tracing;
///
/// let tracing = Tracing::new();
/// // Worker::builder(app).middleware(tracing.clone()).observer(tracing)
/// # fn observer(_: impl venturi::Observer) {}
/// # observer(tracing);
/// ```
#[derive(Clone, Default)]
pub struct Tracing {
    on_start: Option<Arc<OnStart>>,
}

impl Tracing {
    /// One that does what is said above.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls this with each run's span before it is entered for the first time: to give it a parent or a link. Default:
    /// nothing is called.
    ///
    /// A second call takes the first one's place. A panic is logged, and the run goes on.
    #[must_use]
    pub fn on_start(mut self, call: impl Fn(&Span, &RunInfo<'_>) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(call));
        self
    }

    #[cfg(any(feature = "blocking", feature = "async"))]
    fn span(&self, run: &RunInfo<'_>) -> Span {
        let span = tracing::info_span!(
            target: "venturi::run",
            parent: None,
            "run",
            otel.name = run.kind(),
            otel.kind = "consumer",
            otel.status_code = Empty,
            kind = run.kind(),
            job = run.job_id().get(),
            run = run.run_count(),
            priority = run.priority().as_str(),
            worker = run.worker(),
            outcome = Empty,
            error = Empty,
        );
        if let Some(call) = &self.on_start {
            if let Err(panic) = guarded(|| call(&span, run)) {
                notice(Level::Error, format_args!("what was given to Tracing::on_start {panic}"));
            }
        }
        span
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("on_start", &self.on_start.is_some()).finish()
    }
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl crate::middleware::BlockingMiddleware for Tracing {
    fn around(&self, run: &RunInfo<'_>, next: crate::middleware::BlockingNext<'_>) -> Result<Outcome, TaskError> {
        let span = self.span(run);
        let result = span.in_scope(|| next.run());
        ended(&span, &result);
        result
    }
}

#[cfg(feature = "async")]
impl crate::middleware::AsyncMiddleware for Tracing {
    fn around(
        &self,
        run: &RunInfo<'_>,
        next: crate::middleware::AsyncNext<'_>,
    ) -> impl Future<Output = Result<Outcome, TaskError>> + Send {
        use std::pin::Pin;

        let span = self.span(run);
        let mut inside = Box::pin(tracing::Instrument::instrument(next.run(), span.clone()));
        std::future::poll_fn(move |cx| {
            let polled = Pin::new(&mut inside).poll(cx);
            if let std::task::Poll::Ready(result) = &polled {
                ended(&span, result);
            }
            polled
        })
    }
}

/// The error's text is the application's code, which may panic.
#[cfg(any(feature = "blocking", feature = "async"))]
fn ended(span: &Span, result: &Result<Outcome, TaskError>) {
    let outcome = match result {
        Ok(Outcome::Completed { .. }) => "completed",
        Ok(Outcome::Pause { .. }) => "paused",
        Err(error) if error.is_panic() => "panicked",
        Err(_) => "failed",
    };
    span.record("outcome", outcome);
    if let Err(error) = result {
        span.record("otel.status_code", "ERROR");
        let text = guarded(|| error.to_string()).unwrap_or_else(|panic| format!("its text {panic}"));
        span.record("error", text.as_str());
    }
}

/// An event's key-values, as its record in the log has them.
#[derive(Default)]
struct Pairs<'a>(BTreeMap<String, Value<'a>>);

impl<'kvs> VisitSource<'kvs> for Pairs<'kvs> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        self.0.insert(key.as_str().to_owned(), value);
        Ok(())
    }
}

impl Pairs<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_borrowed_str()
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.0.get(key)?.to_i64()
    }

    fn seconds(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.to_f64()
    }
}

/// The fields of a tracing event are part of its place in the code, and so is its level: all fields of all events, for
/// one level.
macro_rules! tell {
    ($level:expr, $pairs:expr, $event:expr) => {
        tracing::event!(
            target: "venturi::event",
            $level,
            event = $pairs.text("event"),
            worker = $pairs.text("worker"),
            job = $pairs.number("job"),
            run = $pairs.number("run"),
            kind = $pairs.text("kind"),
            outcome = $pairs.text("outcome"),
            effect = $pairs.text("effect"),
            waited_seconds = $pairs.seconds("waited_seconds"),
            ran_seconds = $pairs.seconds("ran_seconds"),
            reason = $pairs.text("reason"),
            status = $pairs.text("status"),
            what = $pairs.text("what"),
            link = $pairs.text("link"),
            statement = $pairs.text("statement"),
            error = $pairs.text("error"),
            retry_in_seconds = $pairs.seconds("retry_in_seconds"),
            state = $pairs.text("state"),
            "async" = $pairs.number("async"),
            blocking = $pairs.number("blocking"),
            count = $pairs.number("count"),
            events = $pairs.number("events"),
            "{}",
            $event
        )
    };
}

impl Observer for Tracing {
    fn observe(&self, observed: &Observed<'_>) {
        let facts = Facts::new(observed);
        let mut pairs = Pairs::default();
        if facts.visit(&mut pairs).is_err() {
            return; // Nothing here fails.
        }
        match observed.event.level() {
            Level::Error | Level::Warn => tell!(tracing::Level::WARN, pairs, observed.event),
            Level::Info => tell!(tracing::Level::INFO, pairs, observed.event),
            Level::Debug | Level::Trace => tell!(tracing::Level::DEBUG, pairs, observed.event),
        }
    }
}

#[cfg(test)]
mod tests;
