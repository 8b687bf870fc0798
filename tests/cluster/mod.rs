//! Private PostgreSQL clusters for the tests, the benches and the demo.
//!
//! Mounted with `#[path = "…/tests/cluster/mod.rs"] mod cluster;`. A [`Cluster`] has its own folder, its own port and a
//! server that runs with `fsync = on`, as production does. It is gone with its owner, also when that was killed: see
//! [`Guardian`].

#![allow(dead_code, unused_imports, reason = "each mount uses a part of this module")]
#![allow(
    clippy::disallowed_methods,
    reason = "the ban on clocks, sleeps and threads is for the library; a harness waits for real processes"
)]

mod account;
mod binaries;
mod error;
mod guardian;
mod port;
mod psql;
mod server;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::binaries::{BINARIES_VARIABLE, find_server_binaries};
pub(crate) use self::error::ClusterError;
pub(crate) use self::psql::psql_at;
pub(crate) use self::server::signal;

use self::account::Account;
use self::guardian::Guardian;
use self::psql::{percent_encoded, quoted_identifier};
use self::server::{Server, Site, StartFailure, Stop};

/// The superuser of every cluster, the only role of a fresh one.
pub(crate) const USER: &str = "venturi";
/// The superuser's password. Asked for over TCP, so that tests can give a wrong one; the socket trusts everyone.
pub(crate) const PASSWORD: &str = "not-a-secret";
/// The database that [`Cluster::url`] names.
pub(crate) const DATABASE: &str = "venturi";
/// The variable from which a DSN is taken instead of a private cluster.
pub(crate) const URL_VARIABLE: &str = "DATABASE_URL";

/// How long a restart waits for what the last server left: its port, and the shared memory of orphaned backends.
const RESTART_WITHIN: Duration = Duration::from_secs(30);
/// How many ports are tried before a start is given up. One is nearly always enough.
const PORTS_TRIED: usize = 10;

/// The DSN that tests start from: `DATABASE_URL`, else a cluster that this process starts once and keeps to its end.
pub(crate) fn shared_url() -> Result<String, ClusterError> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    if let Some(url) = std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty()) {
        return Ok(url);
    }
    // A static is never dropped; the guardian sees the process end and cleans up.
    match SHARED.get_or_init(|| Cluster::start().map_err(|error| error.to_string())) {
        Ok(cluster) => Ok(cluster.url()),
        Err(message) => Err(ClusterError::new(message.clone())),
    }
}

/// A running PostgreSQL server with its data, removed on drop.
///
/// Every method takes `&self`, so that one thread may stop the server under the others.
#[derive(Debug)]
pub(crate) struct Cluster {
    // Before the guardian: fields drop in this order, and the folder goes last.
    server: Mutex<Option<Server>>,
    guardian: Guardian,
    site: Site,
    port: u16,
}

impl Cluster {
    /// Makes a cluster and returns when its server accepts connections, in a second or two.
    pub(crate) fn start() -> Result<Self, ClusterError> {
        let (guardian, site) = make_site()?;
        let (server, port) = start_on_a_free_port(&site, &guardian)?;
        let cluster = Self { server: Mutex::new(Some(server)), guardian, site, port };
        cluster.create(DATABASE)?;
        Ok(cluster)
    }

    /// Starts a standby that this server streams to, and that its commits wait for from here on. This server is
    /// restarted for it.
    pub(crate) fn start_standby(&self) -> Result<Self, ClusterError> {
        let (guardian, site) = make_site()?;
        self.stop_fast()?;
        site.follow(&self.site, self.port)?;
        self.restart()?;
        let (server, port) = start_on_a_free_port(&site, &guardian)?;
        let standby = Self { server: Mutex::new(Some(server)), guardian, site, port };
        self.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.psql("SELECT pg_reload_conf()")?;
        let deadline = Instant::now() + RESTART_WITHIN;
        while self.psql("SELECT sync_state FROM pg_stat_replication")? != "sync" {
            if Instant::now() >= deadline {
                return Err(ClusterError::new(format!("the standby does not follow: {}", standby.log()?)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(standby)
    }

    /// A DSN over TCP, with the password.
    pub(crate) fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// A DSN over the Unix socket, which asks for no password.
    pub(crate) fn socket_url(&self) -> String {
        self.socket_url_of(DATABASE)
    }

    /// The port on 127.0.0.1; the same after each [`restart`](Self::restart).
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The folder that holds the data, the socket and the log.
    pub(crate) fn folder(&self) -> &Path {
        &self.site.folder
    }

    /// The postmaster's process id, while a server runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.slot().as_ref().map(Server::pid)
    }

    /// Ends the server as an operator would: sessions are cut, data is written out. No-op when it is stopped.
    pub(crate) fn stop_fast(&self) -> Result<(), ClusterError> {
        self.stop(Stop::Fast)
    }

    /// Ends the server without writing anything out; the next start has to recover. No-op when it is stopped.
    pub(crate) fn stop_immediate(&self) -> Result<(), ClusterError> {
        self.stop(Stop::Immediate)
    }

    /// Ends the postmaster with SIGKILL, as the kernel would when memory runs out. No-op when it is stopped.
    ///
    /// Its backends notice when they next wait for something; one that computes goes on until then, and a restart waits
    /// for it.
    pub(crate) fn kill(&self) -> Result<(), ClusterError> {
        self.stop(Stop::Kill)
    }

    /// Starts the server again on the same port; stops it (fast) first when it runs.
    pub(crate) fn restart(&self) -> Result<(), ClusterError> {
        let mut slot = self.slot();
        self.stop_in(&mut slot, Stop::Fast)?;
        let deadline = Instant::now() + RESTART_WITHIN;
        loop {
            match Server::start(&self.site, self.port, &self.guardian) {
                Ok(server) => {
                    *slot = Some(server);
                    return Ok(());
                }
                Err(StartFailure::Occupied(error)) if Instant::now() >= deadline => return Err(error),
                Err(StartFailure::Occupied(_)) => std::thread::sleep(Duration::from_millis(50)),
                Err(StartFailure::Other(error)) => return Err(error),
            }
        }
    }

    /// Creates an empty database and returns its DSN over TCP.
    pub(crate) fn create_database(&self, name: &str) -> Result<String, ClusterError> {
        self.create(name)?;
        Ok(self.url_of(name))
    }

    /// Runs statements in [`DATABASE`] through the socket; returns the rows, columns separated by `|`.
    ///
    /// Each statement is its own transaction, and the first error ends the run.
    pub(crate) fn psql(&self, sql: &str) -> Result<String, ClusterError> {
        psql_at(&self.site.binaries, &self.socket_url(), sql)
    }

    /// All that the server has logged, over restarts.
    pub(crate) fn log(&self) -> Result<String, ClusterError> {
        self.site.log()
    }

    /// Keeps the cluster alive for a while after this process has gone, until the process `pid` has gone too.
    ///
    /// For a child that ends in good order, say on Ctrl-C, and needs the database for it.
    pub(crate) fn outlive_us_for(&self, pid: u32) -> Result<(), ClusterError> {
        self.guardian.hold_for(pid)
    }

    fn stop(&self, how: Stop) -> Result<(), ClusterError> {
        self.stop_in(&mut self.slot(), how)
    }

    /// With the slot locked throughout, so that stops and restarts of several threads take turns.
    fn stop_in(&self, slot: &mut Option<Server>, how: Stop) -> Result<(), ClusterError> {
        let Some(server) = slot.take() else {
            return Ok(());
        };
        server.stop(how)?;
        self.guardian.note_stopped()
    }

    fn create(&self, name: &str) -> Result<(), ClusterError> {
        let sql = format!("CREATE DATABASE {}", quoted_identifier(name));
        psql_at(&self.site.binaries, &self.socket_url_of("postgres"), &sql).map(drop)
    }

    fn url_of(&self, database: &str) -> String {
        let (port, database) = (self.port, percent_encoded(database));
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/{database}")
    }

    fn socket_url_of(&self, database: &str) -> String {
        let host = percent_encoded(&self.site.folder.to_string_lossy());
        let (port, database) = (self.port, percent_encoded(database));
        format!("postgres://{USER}@{host}:{port}/{database}")
    }

    fn slot(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Our child is ours to reap. Should this fail, the guardian ends it, and the folder goes in any case.
        let _ = self.stop_immediate();
    }
}

fn make_site() -> Result<(Guardian, Site), ClusterError> {
    let binaries = find_server_binaries()?;
    let account = Account::for_servers()?;
    let guardian = Guardian::start(&binaries, account)?;
    let site = Site { folder: guardian.folder().to_owned(), binaries, account };
    Ok((guardian, site))
}

/// Another process may take the port between the look and the server's bind; then the next one is tried.
fn start_on_a_free_port(site: &Site, guardian: &Guardian) -> Result<(Server, u16), ClusterError> {
    let mut last = ClusterError::new("no port was tried");
    for _ in 0..PORTS_TRIED {
        let port = port::free()?;
        match Server::start(site, port, guardian) {
            Ok(server) => return Ok((server, port)),
            Err(StartFailure::Occupied(error)) => last = error,
            Err(StartFailure::Other(error)) => return Err(error),
        }
    }
    Err(last)
}
