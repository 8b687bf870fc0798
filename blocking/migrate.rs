//! Bringing the tables to the version that this code needs.

use postgres::{Client, Row};

use crate::database::SchemaName;
use crate::error::Error;
use crate::fault::Fault;
use crate::inventory::Piece;
use crate::statement::{begin, typed};
use crate::threads;
use crate::{Database, PendingMigrations, migration};

use super::connection::Address;

const DOING: &str = "migrating the schema";

/// Makes venturi's tables, or brings them to the version that this code needs. Does nothing if they are.
///
/// Everything happens in one transaction, so a failure changes nothing. Several programs may do this at the same time:
/// they take turns. It waits as long as that takes. The role needs the right to create the schema, or to create in it,
/// only if there is something to do.
///
/// ```no_run
/// # fn main() -> Result<(), venturi::Error> {
/// let database = venturi::Database::from_env()?;
/// venturi::blocking::migrate(&database)?;
/// # Ok(())
/// # }
/// ```
///
/// Run it as the role that shall own the tables; which rights others need then stands in `docs/security.md`.
///
/// # Errors
/// [`ErrorKind::Unavailable`], [`ErrorKind::Authentication`], [`ErrorKind::Permission`] or [`ErrorKind::ReadOnly`] when
/// the server cannot be reached or refuses; [`ErrorKind::SchemaTooNew`] when later code has changed the schema in a way
/// that this code cannot work with; [`ErrorKind::SchemaDamaged`] when tables, columns or functions are missing whose
/// migrations are recorded, or there are some of these names and no migration is; [`ErrorKind::Database`] when a statement
/// fails.
///
/// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
/// [`ErrorKind::Authentication`]: crate::ErrorKind::Authentication
/// [`ErrorKind::Permission`]: crate::ErrorKind::Permission
/// [`ErrorKind::ReadOnly`]: crate::ErrorKind::ReadOnly
/// [`ErrorKind::SchemaTooNew`]: crate::ErrorKind::SchemaTooNew
/// [`ErrorKind::SchemaDamaged`]: crate::ErrorKind::SchemaDamaged
/// [`ErrorKind::Database`]: crate::ErrorKind::Database
pub fn migrate(database: &Database) -> Result<(), Error> {
    let (address, schema) = (Address::new(database), database.schema_name().clone());
    let begin = begin(database.is_pooled());
    threads::call("venturi-migrate", move || {
        let mut client = address.open().map_err(|fault| fault.to_error(DOING))?;
        run(&mut client, &schema, begin)
    })
}

/// What [`migrate`] would do now; nothing is changed, and a reader's rights suffice.
///
/// # Errors
/// As [`migrate`].
pub fn pending_migrations(database: &Database) -> Result<PendingMigrations, Error> {
    let (address, schema) = (Address::new(database), database.schema_name().clone());
    threads::call("venturi-migrate", move || {
        let mut client = address.open().map_err(|fault| fault.to_error(DOING))?;
        let pieces = pieces(&mut client, &schema)?;
        migration::pending(applied(&mut client, &schema), &pieces)
    })
}

/// If it fails, the client is dropped, and the server undoes the transaction.
fn run(client: &mut Client, schema: &SchemaName, begin: &str) -> Result<(), Error> {
    for sql in [begin, &migration::lock(schema), &migration::bootstrap(schema)] {
        client.batch_execute(sql).map_err(failed)?;
    }
    let applied = applied(client, schema)?;
    let mut there = pieces(client, schema)?;
    let batches = migration::plan(schema, &applied, &there)?;
    for sql in &batches {
        client.batch_execute(sql).map_err(failed)?;
    }
    if !batches.is_empty() {
        there = pieces(client, schema)?;
    }
    migration::check_whole(&applied, &there)?;
    client.batch_execute("COMMIT").map_err(failed)
}

fn applied(client: &mut Client, schema: &SchemaName) -> Result<Vec<(i32, i32)>, Error> {
    let failed = |error| Fault::from_postgres(error).of_record().to_error(DOING);
    let rows = client.query_typed(&migration::applied(schema), &[]).map_err(failed)?;
    rows.iter().map(version).collect::<Result<_, _>>().map_err(failed)
}

fn pieces(client: &mut Client, schema: &SchemaName) -> Result<Vec<Piece>, Error> {
    let (sql, params) = migration::inventory(schema);
    migration::pieces(client.query_typed(&sql, &typed(&params)).map_err(failed)?)
}

fn version(row: &Row) -> Result<(i32, i32), postgres::Error> {
    Ok((row.try_get("version")?, row.try_get("compatible_from")?))
}

fn failed(error: postgres::Error) -> Error {
    Fault::from_postgres(error).to_error(DOING)
}
