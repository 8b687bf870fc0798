//! A job whose runs belong to the trace of the code that has enqueued it, exported to OpenTelemetry.
//!
//! `DATABASE_URL=postgres://… cargo run`, in this folder, with a collector that takes OTLP over HTTP on its usual port, or
//! where `OTEL_EXPORTER_OTLP_ENDPOINT` says. The trace has the span `checkout`, below it one for each of the two runs of
//! the job, and below each the one that its handler opens.

use std::collections::HashMap;
use std::error::Error;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use tracing::{Instrument, Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use venturi::r#async::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, RunInfo, Submit, Task, TaskError, Tracing};

const HEADER: &str = "traceparent";

#[derive(Serialize, Deserialize)]
struct Ship {
    order: u32,
}

impl Task for Ship {
    const KIND: &'static str = "ship";
    type Carry = ();
}

impl Handler<CancellationToken> for Ship {
    async fn handle(&self, context: &mut Context<()>, done: &CancellationToken) -> Result<Outcome, TaskError> {
        // A child of the run's span.
        async { tracing::info!(order = self.order, "packed") }.instrument(tracing::info_span!("pack")).await;
        if context.run_count() == 1 {
            return Err("the courier is late".into());
        }
        done.cancel();
        Ok(Outcome::completed())
    }
}

/// The context of the span that is current, as W3C writes it; empty if there is none.
fn current_trace() -> String {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove(HEADER).unwrap_or_default()
}

/// Lets a run's span be a child of the one that was current when its job was enqueued.
fn continue_trace(span: &Span, run: &RunInfo<'_>) {
    let Some(trace) = run.trace() else { return };
    let carrier = HashMap::from([(HEADER.to_owned(), trace.to_owned())]);
    if let Err(error) = span.set_parent(TraceContextPropagator::new().extract(&carrier)) {
        eprintln!("job {} is not seen in its trace: {error}", run.job_id());
    }
}

async fn check_out(queue: &Queue, order: u32) -> Result<(), venturi::Error> {
    let ship = Ship { order };
    queue.enqueue(Submit::new(&ship).trace(current_trace().as_str())).await?;
    Ok(())
}

async fn trade() -> Result<(), venturi::Error> {
    let database = Database::from_env()?;
    migrate(&database).await?;
    let queue = Queue::connect(&database).await?;
    check_out(&queue, 7).instrument(tracing::info_span!("checkout")).await?;

    let done = CancellationToken::new();
    let tracing = Tracing::new().on_start(continue_trace);
    let worker = Worker::builder(done.clone()).database(database).middleware(tracing).register::<Ship>().build()?;
    let report = worker.run(done).await?;
    println!("{} runs settled", report.settled);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson).build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("venturi-with-opentelemetry"));
    // What the exporter itself does is not to be traced.
    let targets = Targets::new().with_target("venturi::run", Level::INFO).with_target(module_path!(), Level::INFO);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(targets).with(spans))?;

    let traded = futures_lite::future::block_on(trade());
    provider.shutdown()?;
    Ok(traded?)
}
