//! The settings of the queue's own connections.

use postgres::Client;

use super::Result;
use super::server::Server;

/// The library's own text: what is measured here is what it runs.
const SETTINGS: &str = include_str!("../../src/sql/parts/session.sql");

/// A connection as the queue opens one.
pub(crate) fn open(server: &Server) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute(SETTINGS)?;
    Ok(client)
}
