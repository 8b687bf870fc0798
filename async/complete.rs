//! Jobs that are completed in the transactions of their handlers.

use tokio_postgres::Transaction;

use crate::context::{Context, completed};
use crate::error::Error;

use super::within::ask;

/// Completes a job in the transaction that holds its effects, so that both are there or neither.
///
/// Implemented for every [`Context`]; bring it into scope to call its methods. The effects then happen exactly once,
/// as far as they are in the database that the job is in:
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use venturi::{Outcome, Task, TaskError};
/// use venturi::r#async::{CompleteIn, Context, Handler};
///
/// #[derive(Serialize, Deserialize)]
/// struct Pay {
///     account: i64,
///     cents: i64,
/// }
/// # impl Task for Pay { const KIND: &'static str = "pay"; type Carry = (); }
///
/// # struct App;
/// # impl App {
/// #     async fn client(&self) -> Result<tokio_postgres::Client, TaskError> { Err("a connection of the pool".into()) }
/// # }
/// /// `App` is what the handlers share; it has a connection pool.
/// impl Handler<App> for Pay {
///     async fn handle(&self, context: &mut Context<()>, app: &App) -> Result<Outcome, TaskError> {
///         let mut client = app.client().await?;
///         let transaction = client.transaction().await?;
///         let pay = "UPDATE account SET cents = cents + $1 WHERE id = $2";
///         transaction.execute(pay, &[&self.cents, &self.account]).await?;
///         context.complete_in(&transaction).await?;
///         transaction.commit().await?;
///         Ok(Outcome::completed())
///     }
/// }
/// ```
///
/// * A transaction that is rolled back has not completed the job: return an error, and it is run again. `Completed` is
///   not believed then, and the run counts as failed, so that a forgotten commit does not lose the effects.
/// * Once the transaction is committed the job is completed, whatever the handler still does: an error, a panic or a
///   time-out after that is logged and counted in [`ShutdownReport::overruled`], and the job is not run again.
/// * A worker that dies before the commit has done nothing; one that dies after it has done everything.
/// * The job's row is locked until the transaction ends, so make it the last statement before the commit. Its lease
///   cannot be renewed meanwhile; a transaction that stays open beyond it loses nothing, as nobody else can take the
///   job before it ends. [`checkpoint`](Context::checkpoint) is refused from here on.
///
/// The transaction's user needs the rights on venturi's tables that a worker has.
///
/// [`ShutdownReport::overruled`]: crate::ShutdownReport::overruled
pub trait CompleteIn {
    /// Settles the job as completed when `transaction` commits, with the attachment that is set by now.
    ///
    /// # Errors
    /// After each of them the transaction is to be rolled back; nothing was written.
    /// [`ErrorKind::ClaimLost`] when the job is not this run's any more: its lease ran out and it was taken back.
    /// [`ErrorKind::AlreadyCompleted`] when this run has completed it before: in this transaction, or in an earlier
    /// one that was committed although its handler could not know. [`ErrorKind::Conflict`] at REPEATABLE READ or
    /// SERIALIZABLE when the lease was renewed since the transaction's first statement, and at the session's own
    /// `lock_timeout`: do the whole transaction again. Otherwise as a statement of the transaction's own.
    ///
    /// # Cancellation
    /// Dropped before it is first polled, the future has done nothing. Dropped later, the transaction may or may not
    /// complete the job when it commits; dropping the transaction too rolls both back.
    ///
    /// [`ErrorKind::ClaimLost`]: crate::ErrorKind::ClaimLost
    /// [`ErrorKind::AlreadyCompleted`]: crate::ErrorKind::AlreadyCompleted
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    fn complete_in(&mut self, transaction: &Transaction<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// As [`complete_in`](Self::complete_in), with a note for the journal; at most 8 kB, longer ones are cut.
    ///
    /// The note of an [`Outcome`](crate::Outcome) comes too late for a job that is completed already.
    ///
    /// # Errors
    /// As [`complete_in`](Self::complete_in).
    ///
    /// # Cancellation
    /// As [`complete_in`](Self::complete_in).
    fn complete_in_with(
        &mut self,
        transaction: &Transaction<'_>,
        note: impl Into<String> + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<C: Send> CompleteIn for Context<C> {
    async fn complete_in(&mut self, transaction: &Transaction<'_>) -> Result<(), Error> {
        complete(self, transaction, None).await
    }

    async fn complete_in_with(
        &mut self,
        transaction: &Transaction<'_>,
        note: impl Into<String> + Send,
    ) -> Result<(), Error> {
        complete(self, transaction, Some(note.into())).await
    }
}

async fn complete<C>(context: &mut Context<C>, inside: &Transaction<'_>, note: Option<String>) -> Result<(), Error> {
    let (statement, texts) = context.completion(note);
    completed(ask(inside, &texts, &statement).await)
}
