//! The settings of the queue's own connections.

use postgres::Client;

use super::Result;
use super::server::Server;

/// The library's own text: what is measured here is what it runs.
const SOURCE: &str = include_str!("../../src/statement/session.rs");

/// A connection as the queue opens one.
pub(crate) fn open(server: &Server) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute(settings()?)?;
    Ok(client)
}

fn settings() -> Result<&'static str> {
    let (_, rest) = SOURCE.split_once("const SESSION: &str = \"\\\n").ok_or("the session's settings have moved")?;
    let (settings, _) = rest.split_once("\";").ok_or("the session's settings have no end")?;
    Ok(settings)
}
