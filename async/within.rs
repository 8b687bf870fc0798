//! Statements over a client of the caller's.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::fault::Fault;
use crate::statement::{Inside, Reply, Texts};

/// Runs one statement, in whatever transaction the client is in.
pub(super) async fn ask(
    client: &(impl GenericClient + Sync),
    texts: &Texts,
    statement: &Inside,
) -> Result<Reply, Fault> {
    let params = statement.params();
    let params: Vec<(&(dyn ToSql + Sync), Type)> = params.iter().map(|(it, ty)| (&**it as _, ty.clone())).collect();
    let rows = client.query_typed(texts.sql(statement.text()), &params).await.map_err(Fault::from_postgres)?;
    statement.read(&rows).map_err(|error| Fault::malformed(error.to_string()))
}
