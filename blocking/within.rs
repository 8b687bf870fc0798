//! Statements over a client of the caller's.

use postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::fault::Fault;
use crate::statement::{Inside, Reply, Texts};

/// Runs one statement, in whatever transaction the client is in.
pub(super) fn ask(client: &mut impl GenericClient, texts: &Texts, statement: &Inside) -> Result<Reply, Fault> {
    let params = statement.params();
    let params: Vec<(&(dyn ToSql + Sync), Type)> = params.iter().map(|(it, ty)| (&**it as _, ty.clone())).collect();
    let rows = client.query_typed(texts.sql(statement.text()), &params).map_err(Fault::from_postgres)?;
    statement.read(&rows).map_err(|error| Fault::malformed(error.to_string()))
}
