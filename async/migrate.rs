//! Bringing the schema up to date.

use crate::database::SchemaName;
use crate::error::Error;
use crate::fault::Fault;
use crate::inventory::Piece;
use crate::migration::{applied, bootstrap, check_whole, inventory, lock, pending, pieces, plan};
use crate::statement::{begin, typed};
use crate::{Database, PendingMigrations};

use super::connection::Connection;

const DOING: &str = "migrating the schema";

/// Creates the schema and its tables, or brings them up to what this code needs.
///
/// To be run before workers and queues of a new version start. Everything is one transaction. It may be run again, and
/// by many at once: they take turns, and the later ones find nothing left to do. It uses a connection of its own, which
/// moves only while the future is polled; any executor will do.
///
/// Run it as the role that shall own the tables; which rights others need then stands in `docs/security.md`.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly)
/// when no server that takes writes could be reached; [`ErrorKind::Authentication`](crate::ErrorKind::Authentication),
/// [`ErrorKind::Permission`](crate::ErrorKind::Permission) or [`ErrorKind::Config`](crate::ErrorKind::Config) when it
/// refuses; [`ErrorKind::SchemaTooNew`](crate::ErrorKind::SchemaTooNew) when a later version has changed the schema in
/// a way that this code can't work with; [`ErrorKind::SchemaDamaged`](crate::ErrorKind::SchemaDamaged) when tables, columns
/// or functions are missing whose migrations are recorded, or there are some of these names and no migration is. Then
/// nothing was changed, except when the connection was lost at the very end; calling it again is always safe.
///
/// # Cancellation
/// Dropped half-way, it closes the connection, and the server takes back what was done.
pub async fn migrate(database: &Database) -> Result<(), Error> {
    let in_words = |fault: Fault| fault.to_error(DOING);
    let connection = Connection::open(database).await.map_err(in_words)?;
    let schema = database.schema_name();
    let mut session = Session(connection);
    session.run(begin(database.is_pooled())).await.map_err(in_words)?;
    session.run(&lock(schema)).await.map_err(in_words)?;
    session.run(&bootstrap(schema)).await.map_err(in_words)?;
    let versions = session.versions(&applied(schema)).await.map_err(of_record)?;
    let mut pieces = session.pieces(schema).await?;
    let batches = plan(schema, &versions, &pieces)?;
    for batch in &batches {
        session.run(batch).await.map_err(in_words)?;
    }
    if !batches.is_empty() {
        pieces = session.pieces(schema).await?;
    }
    check_whole(&versions, &pieces)?;
    session.run("COMMIT").await.map_err(in_words)
}

/// What [`migrate`] would do now; nothing is changed, and a reader's rights suffice.
///
/// # Errors
/// As [`migrate`].
///
/// # Cancellation
/// Dropped half-way, it closes the connection; it only reads.
pub async fn pending_migrations(database: &Database) -> Result<PendingMigrations, Error> {
    let in_words = |fault: Fault| fault.to_error(DOING);
    let mut session = Session(Connection::open(database).await.map_err(in_words)?);
    let pieces = session.pieces(database.schema_name()).await?;
    pending(session.versions(&applied(database.schema_name())).await.map_err(of_record), &pieces)
}

fn of_record(fault: Fault) -> Error {
    fault.of_record().to_error(DOING)
}

struct Session(Connection);

impl Session {
    async fn run(&mut self, batch: &str) -> Result<(), Fault> {
        let Connection { client, traffic } = &mut self.0;
        traffic.carry(client.batch_execute(batch)).await
    }

    async fn pieces(&mut self, schema: &SchemaName) -> Result<Vec<Piece>, Error> {
        let Connection { client, traffic } = &mut self.0;
        let (sql, params) = inventory(schema);
        let rows = traffic.carry(client.query_typed(&sql, &typed(&params))).await;
        pieces(rows.map_err(|fault| fault.to_error(DOING))?)
    }

    async fn versions(&mut self, query: &str) -> Result<Vec<(i32, i32)>, Fault> {
        let Connection { client, traffic } = &mut self.0;
        let rows = traffic.carry(client.query_typed(query, &[])).await?;
        let version = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter().map(version).collect::<Result<_, tokio_postgres::Error>>().map_err(Fault::from_postgres)
    }
}
