//! The server that is measured against.

use std::env;

use postgres::{Client, Config, NoTls};
use serde_json::Value;
use venturi::Database;

use super::Result;
use crate::cluster::{Cluster, URL_VARIABLE};

/// With what every session is opened, if it is set: `on` (the server's default), `off`, `local`, …
const SYNCHRONOUS_COMMIT: &str = "SYNCHRONOUS_COMMIT";

pub(crate) struct Server {
    pub(crate) dsn: String,
    private: Option<Cluster>,
}

impl Server {
    /// What `DATABASE_URL` names, else a private cluster with `fsync = on`.
    pub(crate) fn start() -> Result<Self> {
        if let Some(dsn) = env::var(URL_VARIABLE).ok().filter(|dsn| !dsn.is_empty()) {
            return Ok(Self { dsn, private: None });
        }
        let cluster = Cluster::start()?;
        let server = Self { dsn: cluster.url(), private: Some(cluster) };
        server.set_synchronous_commit()?;
        Ok(server)
    }

    /// Of everybody, so that a comparison stays one. Only a private server's defaults are ours to change.
    fn set_synchronous_commit(&self) -> Result<()> {
        let Ok(value) = env::var(SYNCHRONOUS_COMMIT) else { return Ok(()) };
        let mut client = self.connect()?;
        let sql = "SELECT format('ALTER DATABASE %I SET synchronous_commit = %L', current_database(), $1::text)";
        let alter: String = client.query_one(sql, &[&value])?.try_get(0)?;
        Ok(client.batch_execute(&alter)?)
    }

    pub(crate) fn connect(&self) -> Result<Client> {
        let config: Config = self.dsn.parse()?;
        Ok(config.connect(NoTls)?)
    }

    /// An empty queue in a schema of this name.
    pub(crate) fn queue(&self, schema: &str) -> Result<Database> {
        self.drop_schema(schema)?;
        let database = Database::new(&self.dsn)?.schema(schema)?;
        venturi::blocking::migrate(&database)?;
        Ok(database)
    }

    pub(crate) fn drop_schema(&self, schema: &str) -> Result<()> {
        let mut client = self.connect()?;
        client.batch_execute("SET client_min_messages = warning")?;
        Ok(client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"))?)
    }

    /// Leaves the tables as they are some time after they were filled.
    pub(crate) fn tidy_up(&self, schema: &str) -> Result<()> {
        let mut client = self.connect()?;
        let sql = "SELECT format('VACUUM (ANALYZE) %I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = $1";
        for row in client.query(sql, &[&schema])? {
            client.batch_execute(row.try_get(0)?)?;
        }
        Ok(())
    }

    /// The postmaster of a private server, whose process times are ours to read.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.private.as_ref().and_then(Cluster::pid)
    }

    /// Those that figures depend on, as a JSON object.
    pub(crate) fn settings(&self) -> Result<Value> {
        let names = ["server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"];
        let mut client = self.connect()?;
        let mut settings = serde_json::Map::new();
        for name in names {
            let value: String = client.query_one("SELECT current_setting($1)", &[&name])?.try_get(0)?;
            settings.insert(name.to_owned(), value.into());
        }
        Ok(settings.into())
    }
}
