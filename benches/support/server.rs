//! The server that is measured against.

use std::env;

use postgres::{Client, Config, NoTls};

use super::Result;
use crate::cluster::{Cluster, URL_VARIABLE};

pub(crate) struct Server {
    pub(crate) dsn: String,
    private: Option<Cluster>,
}

impl Server {
    /// What `DATABASE_URL` names, else a private cluster.
    pub(crate) fn start() -> Result<Self> {
        if let Some(dsn) = env::var(URL_VARIABLE).ok().filter(|dsn| !dsn.is_empty()) {
            return Ok(Self { dsn, private: None });
        }
        let cluster = Cluster::start()?;
        Ok(Self { dsn: cluster.url(), private: Some(cluster) })
    }

    pub(crate) fn connect(&self) -> Result<Client> {
        let config: Config = self.dsn.parse()?;
        Ok(config.connect(NoTls)?)
    }

    /// The postmaster of a private server, whose process times are ours to read.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.private.as_ref().and_then(Cluster::pid)
    }
}
