//! Statements over a client of the caller's.

use tokio_postgres::GenericClient;

use crate::error::Error;
use crate::fault::Fault;
use crate::statement::{Inside, Reply, Texts, typed};
use crate::visit::{RELEASE, ROLL_BACK, SAVEPOINT, Visit, is_outside, savepoint_failed};
use crate::{Submit, Task};

/// Runs one statement, in whatever transaction the client is in.
pub(super) async fn ask(
    client: &(impl GenericClient + Sync),
    texts: &Texts,
    statement: &Inside,
) -> Result<Reply, Fault> {
    let params = statement.params();
    let rows = client.query_typed(texts.sql(statement.text()), &typed(&params)).await.map_err(Fault::from_postgres)?;
    Ok(statement.read(&rows)?)
}

/// Runs an enqueue to its end. With a savepoint, nothing of it stays when it fails, and the caller's transaction can go on.
pub(super) async fn enqueue<'a, T: Task, I>(
    client: &mut (impl GenericClient + Send + Sync),
    texts: &Texts,
    visit: &mut Visit<'a, T, I>,
    savepoint: bool,
) -> Result<(), Error>
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    if !savepoint {
        drive(client, texts, visit).await;
        return Ok(());
    }
    let end = match client.batch_execute(SAVEPOINT).await {
        Ok(()) => {
            drive(client, texts, visit).await;
            client.batch_execute(if visit.has_failed() { ROLL_BACK } else { RELEASE }).await
        }
        Err(error) if is_outside(&error) => {
            let inside = client.transaction().await.map_err(savepoint_failed)?;
            drive(&inside, texts, visit).await;
            if visit.has_failed() { inside.rollback().await } else { inside.commit().await }
        }
        Err(error) => return Err(savepoint_failed(error)),
    };
    // What was wrong with the enqueue says more than that the way back failed as well.
    if visit.has_failed() { Ok(()) } else { end.map_err(savepoint_failed) }
}

async fn drive<'a, T: Task, I>(client: &(impl GenericClient + Sync), texts: &Texts, visit: &mut Visit<'a, T, I>)
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    while let Some(statement) = visit.next() {
        let reply = ask(client, texts, &statement).await;
        visit.answered(reply);
    }
}
