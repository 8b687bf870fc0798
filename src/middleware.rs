//! What surrounds every run of a worker: layers of the application's around the handler.
#![deny(clippy::disallowed_methods)]

use std::fmt;
#[cfg(feature = "async")]
use std::future::poll_fn;
#[cfg(feature = "async")]
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use crate::context::Facts;
#[cfg(feature = "async")]
use crate::panic_boundary::GuardedFuture;
#[cfg(any(feature = "blocking", feature = "async"))]
use crate::panic_boundary::{Contained, guarded};
use crate::{JobId, Outcome, Priority, TaskError};

/// One run of one job, as middleware sees it.
#[derive(Clone, Debug)]
pub struct RunInfo<'a> {
    facts: Facts,
    worker: Arc<str>,
    payload: &'a str,
}

impl<'a> RunInfo<'a> {
    pub(crate) fn new(facts: &Facts, worker: &Arc<str>, payload: &'a str) -> Self {
        Self { facts: facts.clone(), worker: Arc::clone(worker), payload }
    }

    /// The job's number.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.facts.id.job_id()
    }

    /// The job's kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.facts.kind
    }

    /// How often the job has been started, this run included: 1 for the first run.
    #[must_use]
    pub fn run_count(&self) -> u32 {
        self.facts.id.run_count()
    }

    /// How often the job has failed before this run.
    #[must_use]
    pub fn failure_count(&self) -> u32 {
        self.facts.failures()
    }

    /// The job's priority.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.facts.priority
    }

    /// When the job was enqueued, by the database's clock.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.facts.created_at
    }

    /// When the job became due for this run, by the database's clock.
    #[must_use]
    pub fn due_at(&self) -> SystemTime {
        self.facts.visible_at
    }

    /// The context of the trace that the job belongs to, as it was given when the job was enqueued
    /// ([`Submit::trace`](crate::Submit::trace)).
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.facts.trace.as_deref()
    }

    /// The worker's identity as its claims are recorded, `host:pid:suffix`.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// The payload, as JSON text: for what every task of an application has, such as a tenant.
    #[must_use]
    pub fn payload(&self) -> &str {
        self.payload
    }
}

/// A layer around every run whose handler is a blocking one: for tracing, tenancy, error reporting, limits.
///
/// Given to a worker's builder; closures are middleware, too. The first that is given is the outermost. It is called on
/// the handler's thread, between decoding the job and storing the result; a job that cannot be decoded has no run.
///
/// What it returns is the run's result as if the handler had returned it, and is stored under the same fence as any; so
/// it may pass the handler's on, replace it, or not run the handler at all. A panic of the handler, or of a layer, is an
/// error to the layers outside of it ([`TaskError::is_panic`]); passed on, it is handled by the worker's panic policy.
///
/// ```
/// use venturi::blocking::Next;
/// use venturi::{Outcome, RunInfo, TaskError};
///
/// let reporting = |run: &RunInfo<'_>, next: Next<'_>| {
///     let result = next.run();
///     if let Err(error) = &result {
///         eprintln!("job {} ({}), run {}: {error}", run.job_id(), run.kind(), run.run_count());
///     }
///     result
/// };
/// # fn layer(_: impl venturi::blocking::Middleware) {}
/// # layer(reporting);
/// ```
#[cfg(any(feature = "blocking", feature = "async"))]
pub trait BlockingMiddleware: Send + Sync + 'static {
    /// Does one run, mostly by `next.run()`.
    ///
    /// # Errors
    /// What the run is to fail with.
    fn around(&self, run: &RunInfo<'_>, next: BlockingNext<'_>) -> Result<Outcome, TaskError>;
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl<F> BlockingMiddleware for F
where
    F: Fn(&RunInfo<'_>, BlockingNext<'_>) -> Result<Outcome, TaskError> + Send + Sync + 'static,
{
    fn around(&self, run: &RunInfo<'_>, next: BlockingNext<'_>) -> Result<Outcome, TaskError> {
        self(run, next)
    }
}

/// It may be dropped long after it was given, and together with others.
#[cfg(any(feature = "blocking", feature = "async"))]
impl<M: BlockingMiddleware> BlockingMiddleware for Contained<M> {
    fn around(&self, run: &RunInfo<'_>, next: BlockingNext<'_>) -> Result<Outcome, TaskError> {
        match &self.0 {
            Some(layer) => layer.around(run, next),
            None => next.run(),
        }
    }
}

/// The layers further in, and the handler.
#[cfg(any(feature = "blocking", feature = "async"))]
#[must_use = "the handler is not run unless `run` is called"]
pub struct BlockingNext<'a> {
    run: &'a RunInfo<'a>,
    layers: &'a [Arc<dyn BlockingMiddleware>],
    handler: Box<dyn FnOnce() -> Result<Outcome, TaskError> + 'a>,
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl<'a> BlockingNext<'a> {
    pub(crate) fn new(
        run: &'a RunInfo<'a>,
        layers: &'a Layers,
        handler: impl FnOnce() -> Result<Outcome, TaskError> + 'a,
    ) -> Self {
        Self { run, layers: &layers.0.blocking, handler: Box::new(handler) }
    }

    /// Runs them on this thread. It never panics: a panic comes back as an error.
    ///
    /// # Errors
    /// What the handler, or a layer further in, failed with; see [`TaskError::is_panic`].
    pub fn run(self) -> Result<Outcome, TaskError> {
        let Self { run, layers, handler } = self;
        unpanicked(match layers.split_first() {
            None => guarded(handler),
            Some((first, layers)) => guarded(|| first.around(run, Self { run, layers, handler })),
        })
    }
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl fmt::Debug for BlockingNext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

/// A layer around every run whose handler is a future: for tracing, tenancy, error reporting, limits.
///
/// Given to a worker's builder; the first that is given is the outermost. Its future is polled where the handler's is,
/// between decoding the job and storing the result; a job that cannot be decoded has no run.
///
/// What it returns is the run's result as if the handler had returned it, and is stored under the same fence as any; so
/// it may pass the handler's on, replace it, or not run the handler at all. A panic of the handler, or of a layer, is an
/// error to the layers outside of it ([`TaskError::is_panic`]); passed on, it is handled by the worker's panic policy.
///
/// # Cancellation
/// When a run is dropped, so are its layers' futures, the outermost first; what a layer must undo belongs into the
/// `Drop` of a value that its future holds.
///
/// ```
/// use venturi::r#async::{Middleware, Next};
/// use venturi::{Outcome, RunInfo, TaskError};
///
/// struct Reporting;
///
/// impl Middleware for Reporting {
///     async fn around(&self, run: &RunInfo<'_>, next: Next<'_>) -> Result<Outcome, TaskError> {
///         let result = next.run().await;
///         if let Err(error) = &result {
///             eprintln!("job {} ({}), run {}: {error}", run.job_id(), run.kind(), run.run_count());
///         }
///         result
///     }
/// }
/// ```
#[cfg(feature = "async")]
pub trait AsyncMiddleware: Send + Sync + 'static {
    /// Does one run, mostly by `next.run()`.
    ///
    /// # Errors
    /// What the run is to fail with.
    fn around(&self, run: &RunInfo<'_>, next: AsyncNext<'_>)
    -> impl Future<Output = Result<Outcome, TaskError>> + Send;
}

/// The layers further in, and the handler.
#[cfg(feature = "async")]
#[must_use = "the handler is not run unless `run` is called"]
pub struct AsyncNext<'a> {
    run: &'a RunInfo<'a>,
    layers: &'a [Arc<dyn Erased>],
    handler: Running<'a>,
}

/// A run, or what is left of it further in.
#[cfg(feature = "async")]
type Running<'a> = Pin<Box<dyn Future<Output = Result<Outcome, TaskError>> + Send + 'a>>;

/// An [`AsyncMiddleware`] whose type is forgotten.
#[cfg(feature = "async")]
trait Erased: Send + Sync {
    fn around<'a>(&'a self, run: &'a RunInfo<'a>, next: AsyncNext<'a>) -> Running<'a>;
}

#[cfg(feature = "async")]
impl<M: AsyncMiddleware> Erased for Contained<M> {
    fn around<'a>(&'a self, run: &'a RunInfo<'a>, next: AsyncNext<'a>) -> Running<'a> {
        match &self.0 {
            Some(layer) => Box::pin(layer.around(run, next)),
            None => Box::pin(next.run()),
        }
    }
}

#[cfg(feature = "async")]
impl<'a> AsyncNext<'a> {
    /// `handler` does nothing before it is polled, and neither polling nor dropping it panics.
    pub(crate) fn new(
        run: &'a RunInfo<'a>,
        layers: &'a Layers,
        handler: impl Future<Output = Result<Outcome, TaskError>> + Send + 'a,
    ) -> Self {
        Self { run, layers: &layers.0.asynchronous, handler: Box::pin(handler) }
    }

    /// Runs them. Neither polling nor dropping the future panics: a panic comes back as an error.
    ///
    /// # Errors
    /// What the handler, or a layer further in, failed with; see [`TaskError::is_panic`].
    ///
    /// # Cancellation
    /// Dropping the future drops the handler's. The run goes on until the layer returns.
    pub fn run(self) -> impl Future<Output = Result<Outcome, TaskError>> + Send + use<'a> {
        let Self { run, layers, handler } = self;
        match layers.split_first() {
            None => handler,
            Some((first, layers)) => {
                let next = Self { run, layers, handler };
                let mut layer = GuardedFuture::new(move || first.around(run, next));
                Box::pin(poll_fn(move |cx| Pin::new(&mut layer).poll(cx).map(unpanicked)))
            }
        }
    }
}

#[cfg(feature = "async")]
impl fmt::Debug for AsyncNext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

/// A panic as an error, so that layers see it.
#[cfg(any(feature = "blocking", feature = "async"))]
pub(crate) fn unpanicked(result: Result<Result<Outcome, TaskError>, String>) -> Result<Outcome, TaskError> {
    result.unwrap_or_else(|panic| Err(TaskError::panicked(panic)))
}

/// The layers of one worker, the outermost first. A clone is cheap.
#[derive(Clone, Default)]
pub(crate) struct Layers(Arc<Chains>);

#[derive(Clone, Default)]
struct Chains {
    #[cfg(any(feature = "blocking", feature = "async"))]
    blocking: Vec<Arc<dyn BlockingMiddleware>>,
    #[cfg(feature = "async")]
    asynchronous: Vec<Arc<dyn Erased>>,
}

#[cfg(any(feature = "blocking", feature = "async"))]
impl Layers {
    pub(crate) fn add_blocking(&mut self, layer: impl BlockingMiddleware) {
        Arc::make_mut(&mut self.0).blocking.push(Arc::new(Contained::new(layer)));
    }

    #[cfg(feature = "async")]
    pub(crate) fn add_async(&mut self, layer: impl AsyncMiddleware) {
        Arc::make_mut(&mut self.0).asynchronous.push(Arc::new(Contained::new(layer)));
    }

    /// Whether anything surrounds blocking handlers.
    pub(crate) fn surround_threads(&self) -> bool {
        !self.0.blocking.is_empty()
    }

    /// Whether anything surrounds futures.
    #[cfg(feature = "async")]
    pub(crate) fn surround_futures(&self) -> bool {
        !self.0.asynchronous.is_empty()
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").finish_non_exhaustive()
    }
}
