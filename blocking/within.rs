//! Statements over a client of the caller's.

use postgres::GenericClient;

use crate::error::Error;
use crate::fault::Fault;
use crate::statement::{Inside, Reply, Texts, typed};
use crate::visit::{RELEASE, ROLL_BACK, SAVEPOINT, Visit, is_outside, savepoint_failed};
use crate::{Submit, Task};

/// Runs one statement, in whatever transaction the client is in.
pub(super) fn ask(client: &mut impl GenericClient, texts: &Texts, statement: &Inside) -> Result<Reply, Fault> {
    let params = statement.params();
    let rows = client.query_typed(texts.sql(statement.text()), &typed(&params)).map_err(Fault::from_postgres)?;
    Ok(statement.read(&rows)?)
}

/// Runs an enqueue to its end. With a savepoint, nothing of it stays when it fails, and the caller's transaction can go on.
pub(super) fn enqueue<'a, T: Task, I>(
    client: &mut impl GenericClient,
    texts: &Texts,
    visit: &mut Visit<'a, T, I>,
    savepoint: bool,
) -> Result<(), Error>
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    if !savepoint {
        drive(client, texts, visit);
        return Ok(());
    }
    let end = match client.batch_execute(SAVEPOINT) {
        Ok(()) => {
            drive(client, texts, visit);
            client.batch_execute(if visit.has_failed() { ROLL_BACK } else { RELEASE })
        }
        Err(error) if is_outside(&error) => {
            let mut inside = client.transaction().map_err(savepoint_failed)?;
            drive(&mut inside, texts, visit);
            if visit.has_failed() { inside.rollback() } else { inside.commit() }
        }
        Err(error) => return Err(savepoint_failed(error)),
    };
    // What was wrong with the enqueue says more than that the way back failed as well.
    if visit.has_failed() { Ok(()) } else { end.map_err(savepoint_failed) }
}

fn drive<'a, T: Task, I>(client: &mut impl GenericClient, texts: &Texts, visit: &mut Visit<'a, T, I>)
where
    I: Iterator<Item: Into<Submit<'a, T>>>,
{
    while let Some(statement) = visit.next() {
        let reply = ask(client, texts, &statement);
        visit.answered(reply);
    }
}
