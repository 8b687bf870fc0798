//! How a handler gets onto the application's executor.

use std::pin::Pin;

/// A run of a job, as a spawner is given it.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Puts runs onto an executor, so that handlers run in parallel and not only concurrently.
///
/// Every closure that takes a [`BoxFuture`] is one:
///
/// ```
/// # use venturi::r#async::{BoxFuture, Spawn};
/// # fn is_spawner(_: impl Spawn) {}
/// is_spawner(|run: BoxFuture| smol::spawn(run).detach());
/// is_spawner(|run: BoxFuture| {
///     tokio::spawn(run);
/// });
/// ```
///
/// It is called inside the worker's `run` future, so what that future's executor provides is at hand, and it must not
/// block. A future that is thrown away unfinished, or a spawner that panics, gives its job back without a failure;
/// several claims in a row whose runs are thrown away end the worker with
/// [`ErrorKind::Spawner`](crate::ErrorKind::Spawner).
pub trait Spawn: Send + Sync + 'static {
    /// Arranges for `run` to be polled to its end.
    fn spawn(&self, run: BoxFuture);
}

impl<F: Fn(BoxFuture) + Send + Sync + 'static> Spawn for F {
    fn spawn(&self, run: BoxFuture) {
        self(run);
    }
}
