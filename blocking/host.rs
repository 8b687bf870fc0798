//! The places that the settings name, each with settings of its own.
//!
//! The client can try several hosts itself, and look for one that takes writes. But it looks before the session's
//! settings are made, so that a role whose transactions are read-only by default seems to be a standby; and of several
//! failures it tells the last, which may not be the one that matters.

use std::fmt;

use postgres::Client;
use tokio_postgres::Config;
use tokio_postgres::config::{Host as HostName, TargetSessionAttrs};

use crate::Database;
use crate::fault::Fault;
use crate::panic_boundary::guarded;
use crate::statement::{Attempts, IS_READ_ONLY, SESSION, trial};
use crate::tls::Encryption;

const DEFAULT_PORT: u16 = 5432;

/// One server.
pub(super) struct Host {
    /// For messages.
    name: String,
    config: postgres::Config,
    encryption: Encryption,
    pooled: bool,
}

impl Host {
    /// All of them, in the order in which they are to be tried.
    pub(super) fn all(database: &Database) -> Vec<Self> {
        let config = database.config();
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        (0..count).map(|nth| Self::nth(database, nth)).collect()
    }

    fn nth(database: &Database, nth: usize) -> Self {
        let config = database.config();
        let mut alone = alone(config, nth);
        alone.ssl_mode(database.ssl_mode(config.get_hosts().get(nth)));
        if let (None, Some(number)) = (config.get_hosts().get(nth), config.get_hostaddrs().get(nth)) {
            // The client takes what a certificate has to be for from here alone.
            alone.host(number.to_string());
        }
        Self {
            name: name(config, nth),
            config: alone.into(),
            encryption: Encryption::of(database),
            pooled: database.is_pooled(),
        }
    }

    /// Connects to the first one that takes writes, with the session's settings made.
    pub(super) fn open_any(hosts: &[Self]) -> Result<Client, Fault> {
        let mut faults = Vec::new();
        for host in hosts {
            match host.open() {
                Ok(client) => return Ok(client),
                Err(fault) => faults.push(Fault { message: format!("{host}: {}", fault.message), ..fault }),
            }
        }
        Err(Fault::weightiest(faults))
    }

    /// It can't be given one deadline for everything: `connect_timeout` bounds the socket's part. A server that accepts
    /// and then says nothing holds the thread until it is gone.
    fn open(&self) -> Result<Client, Fault> {
        // The client panics when the system has no file left for it, which may pass.
        let connected =
            guarded(|| self.config.connect(self.encryption.clone())).map_err(|panic| Fault::client_panicked(&panic))?;
        let mut client = connected.map_err(not_sent)?;
        if self.pooled {
            // What is set over a pooler would be set for others.
            return client.batch_execute(trial()).map(|()| client).map_err(not_sent);
        }
        // Settings first: they undo a role's own default of read-only transactions.
        send_settings(&mut client)?;
        let row = client.query_one(IS_READ_ONLY, &[]).map_err(not_sent)?;
        let read_only: String = row.try_get(0).map_err(not_sent)?;
        if read_only == "on" { Err(Fault::takes_no_writes()) } else { Ok(client) }
    }
}

fn send_settings(client: &mut Client) -> Result<(), Fault> {
    let mut attempts = Attempts::new();
    loop {
        match client.batch_execute(SESSION).map_err(not_sent) {
            Err(fault) if attempts.may_go_on(&fault) => {}
            settled => return settled,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn name(config: &Config, nth: usize) -> String {
    let port = port(config, nth);
    match (config.get_hostaddrs().get(nth), config.get_hosts().get(nth)) {
        (Some(number), _) => format!("{number}:{port}"),
        (None, Some(HostName::Tcp(name))) => format!("{name}:{port}"),
        #[cfg(unix)]
        (None, Some(HostName::Unix(folder))) => format!("{}:{port}", folder.display()),
        (None, None) => String::new(),
    }
}

fn port(config: &Config, nth: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(nth).or(ports.first()).copied().unwrap_or(DEFAULT_PORT)
}

/// The settings with only the nth host in them, whatever it can do.
fn alone(config: &Config, nth: usize) -> Config {
    let mut alone = common(config);
    match config.get_hosts().get(nth) {
        Some(HostName::Tcp(name)) => alone.host(name),
        #[cfg(unix)]
        Some(HostName::Unix(folder)) => alone.host_path(folder),
        None => &mut alone,
    };
    if let Some(number) = config.get_hostaddrs().get(nth) {
        alone.hostaddr(*number);
    }
    alone.port(port(config, nth));
    alone
}

/// All settings but hosts, addresses and ports, of which none can be taken out again.
fn common(config: &Config) -> Config {
    let mut common = Config::new();
    common
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts())
        .target_session_attrs(TargetSessionAttrs::Any)
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    config.get_user().map(|it| common.user(it));
    config.get_password().map(|it| common.password(it));
    config.get_dbname().map(|it| common.dbname(it));
    config.get_options().map(|it| common.options(it));
    config.get_application_name().map(|it| common.application_name(it));
    config.get_connect_timeout().map(|it| common.connect_timeout(*it));
    config.get_tcp_user_timeout().map(|it| common.tcp_user_timeout(*it));
    config.get_keepalives_interval().map(|it| common.keepalives_interval(it));
    config.get_keepalives_retries().map(|it| common.keepalives_retries(it));
    common
}

fn not_sent(error: postgres::Error) -> Fault {
    Fault::from_postgres(error).not_sent()
}

#[cfg(test)]
mod tests;
