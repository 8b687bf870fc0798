//! Where the database is and how it is reached.
#![deny(clippy::disallowed_methods)]

use std::env::{self, VarError};
use std::error::Error as StdError;
use std::fmt;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use rustls::ClientConfig;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::error::{Error, ErrorKind};

mod tls;

/// The variable that [`Database::from_env`] reads.
const VARIABLE: &str = "DATABASE_URL";

const DEFAULT_SCHEMA: &str = "venturi";
const DEFAULT_APPLICATION_NAME: &str = "venturi";

/// Long enough for a host that is far away and a fail-over proxy that waits; a worker retries anyway.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A silent connection is found dead after 30 + 3 × 10 seconds, instead of after two hours.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVES_RETRIES: u32 = 3;
/// The value that `tokio_postgres` reports when nobody set one.
const UNSET_KEEPALIVES_IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// A connection that does not acknowledge what it was sent is dead after this, instead of after a quarter of an hour.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);
/// `tokio_postgres` reads seconds where libpq reads milliseconds. Nobody means more than this many seconds.
const LONGEST_TCP_USER_TIMEOUT: Duration = Duration::from_secs(600);

/// What PostgreSQL takes as an identifier without cutting it.
const MAX_SCHEMA: usize = 63;

/// Where the jobs are: a PostgreSQL server, a database, and a schema in it.
///
/// Making one connects to nothing. Connections are made with these settings unless the connection string says
/// otherwise: `connect_timeout` 10 s, `keepalives_idle` 30 s, `keepalives_interval` 10 s, `keepalives_retries` 3,
/// `tcp_user_timeout` 30 s, `application_name` venturi. Of several hosts the one that takes writes is used, whatever
/// `target_session_attrs` says.
///
/// Connections are encrypted when the feature `tls` is on and the settings for it are given, with `Database::tls`.
/// Without them `sslmode=prefer`, the default, connects in plain text, and `sslmode=require` is refused.
///
/// ```
/// use venturi::Database;
///
/// # fn main() -> Result<(), venturi::Error> {
/// let database = Database::new("postgres://worker@localhost/app")?.schema("jobs")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    config: Config,
    schema: SchemaName,
    listen: bool,
    pooled: bool,
    /// Where a worker listens and renews, if that is somewhere else.
    direct: Option<Box<Config>>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<ClientConfig>>,
}

impl Database {
    /// A database given by a connection string, as a URL or as `key=value` pairs.
    ///
    /// Special characters in a URL's password have to be percent-encoded. `tcp_user_timeout` is in seconds; as libpq
    /// reads milliseconds there, more than 600 are taken for milliseconds. `sslmode` is `disable`, `prefer` or `require`;
    /// `verify-ca` and `verify-full` mean `require`, as certificates are always verified. `sslrootcert` and its kin are
    /// not read from here.
    ///
    /// ```
    /// # fn main() -> Result<(), venturi::Error> {
    /// let by_url = venturi::Database::new("postgres://worker:secret@db1,db2:5433/app?connect_timeout=3")?;
    /// let by_pairs = venturi::Database::new("host=/var/run/postgresql dbname=app")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the text is malformed or names no host, or asks for TLS and the feature `tls` is off.
    /// The message never repeats what might be a password.
    pub fn new(dsn: &str) -> Result<Self, Error> {
        let mut config: Config = parsed(dsn).map_err(|error| malformed(&error))?;
        let user_timeout = config.get_tcp_user_timeout().copied().unwrap_or_default();
        if user_timeout > LONGEST_TCP_USER_TIMEOUT {
            config.tcp_user_timeout(user_timeout / 1_000);
        }
        Self::from_config(config)
    }

    /// A database given by the client's own settings; `postgres::Config` can be made into this type with `into()`.
    ///
    /// ```
    /// # fn main() -> Result<(), venturi::Error> {
    /// let mut config = tokio_postgres::Config::new();
    /// config.host("localhost").dbname("app");
    /// let database = venturi::Database::from_config(config)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when no host is named, hosts and ports don't match, or TLS is asked for and the feature
    /// `tls` is off.
    pub fn from_config(mut config: Config) -> Result<Self, Error> {
        check_hosts(&config)?;
        set_defaults(&mut config);
        let database = Self {
            config,
            schema: SchemaName(DEFAULT_SCHEMA.to_owned()),
            listen: true,
            pooled: false,
            direct: None,
            #[cfg(feature = "tls")]
            tls: None,
        };
        if cfg!(not(feature = "tls")) {
            database.check_tls()?;
        }
        Ok(database)
    }

    /// The database that the environment variable `DATABASE_URL` names.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), venturi::Error> {
    /// let database = venturi::Database::from_env()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the variable is not set or empty, and as [`new`](Self::new).
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variable(env::var(VARIABLE))
    }

    fn from_variable(value: Result<String, VarError>) -> Result<Self, Error> {
        match value {
            Ok(dsn) if dsn.trim().is_empty() => {
                Err(refused(format!("the environment variable {VARIABLE} is empty; {SET_IT}")))
            }
            Ok(dsn) => Self::new(&dsn),
            Err(VarError::NotPresent) => {
                Err(refused(format!("the environment variable {VARIABLE} is not set; {SET_IT}")))
            }
            Err(VarError::NotUnicode(_)) => Err(refused(format!("the environment variable {VARIABLE} is not UTF-8"))),
        }
    }

    /// The schema that holds the tables. Default: `venturi`.
    ///
    /// 1 to 63 bytes; it is quoted wherever it is used, so case and special characters count. It is also the name of
    /// the notification channel. Queues in different schemas know nothing of each other.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty, too long, contains a control character, or begins with `pg_`,
    /// which PostgreSQL keeps for itself.
    pub fn schema(mut self, name: &str) -> Result<Self, Error> {
        self.schema = SchemaName::new(name)?;
        Ok(self)
    }

    /// Whether a worker listens for notifications. Default: `true`.
    ///
    /// It then holds an advisory lock for each of its kinds, a single one if they are more than 16, so that queues notify
    /// only of what some worker waits for.
    ///
    /// Without it, a job that nobody looks for starts when `poll_max` is over at the latest, and a running one that is
    /// cancelled hears of it then, at the soonest within a second.
    #[must_use]
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Where a worker listens and renews its leases, if not where it works: the same database by another way.
    ///
    /// For a pooler in transaction mode, over which nobody can listen: name the server itself here. A worker then keeps
    /// one connection to each. Schema, settings of TLS and `connect_timeout` are those of this database; the connection
    /// string says all else, as in [`new`](Self::new). Queues and `migrate` don't use it.
    ///
    /// ```
    /// # fn main() -> Result<(), venturi::Error> {
    /// let database = venturi::Database::new("postgres://worker@pooler:6432/app")?
    ///     .pooled(true)
    ///     .listen_on("postgres://worker@server:5432/app")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn listen_on(mut self, dsn: &str) -> Result<Self, Error> {
        self.direct = Some(Box::new(Self::new(dsn)?.config));
        Ok(self)
    }

    /// Whether connections lead to a pooler in transaction mode, such as PgBouncer's. Default: `false`.
    ///
    /// Such a pooler lends a server's connection for one transaction. So nothing may be left behind there, nor be
    /// expected: each statement becomes a transaction that brings its settings along, nothing is prepared, and a worker
    /// polls every `poll_max`, unless [`listen_on`](Self::listen_on) says where it can listen. It costs more bytes and,
    /// in the blocking front-end, two more trips to the server for each statement; and the server plans each one anew.
    ///
    /// A pooler in session mode needs none of this.
    #[must_use]
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }

    /// How long one host may take to accept a connection, log-in included. Default: 10 seconds.
    ///
    /// Clamped to 10 ms … 1 hour.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout(timeout.clamp(MIN_CONNECT_TIMEOUT, MAX_CONNECT_TIMEOUT));
        self
    }

    /// The client's settings, with everything decided.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn schema_name(&self) -> &SchemaName {
        &self.schema
    }

    /// Over a pooler in transaction mode one would listen for somebody else.
    pub(crate) fn listens(&self) -> bool {
        self.listen && (!self.pooled || self.direct.is_some())
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// The database as the connection that listens and renews has it.
    pub(crate) fn watched(&self) -> Self {
        let mut watched = self.clone();
        if let Some(direct) = watched.direct.take() {
            watched.config = *direct;
            self.config.get_connect_timeout().map(|timeout| watched.config.connect_timeout(*timeout));
            watched.pooled = false;
        }
        watched
    }
}

/// Without the password, and without `options`, which may carry secrets of extensions.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("hosts", &self.config.get_hosts())
            .field("hostaddrs", &self.config.get_hostaddrs())
            .field("ports", &self.config.get_ports())
            .field("user", &self.config.get_user())
            .field("dbname", &self.config.get_dbname())
            .field("schema", &self.schema.0)
            .field("listen", &self.listen)
            .field("pooled", &self.pooled)
            .field("listen_on", &self.direct.as_ref().map(|direct| direct.get_hosts()))
            .finish_non_exhaustive()
    }
}

const SET_IT: &str = "set it to something like postgres://user:password@host/database";

fn refused(problem: String) -> Error {
    Error::new(ErrorKind::Config, format!("reading the database settings: {problem}"))
}

/// Options that libpq knows and `tokio_postgres` does not.
const OTHERS: [&str; 15] = [
    "client_encoding",
    "fallback_application_name",
    "gssencmode",
    "krbsrvname",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "sslcert",
    "sslcompression",
    "sslcrl",
    "sslkey",
    "sslpassword",
    "sslsni",
];

fn parsed(dsn: &str) -> Result<Config, tokio_postgres::Error> {
    let first = dsn.parse();
    match tls::requiring(dsn) {
        Some(again) if first.is_err() => again.parse(),
        _ => first,
    }
}

/// Says what is wrong in words of our own: an option that is not known may be a part of a password.
fn malformed(error: &tokio_postgres::Error) -> Error {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let quoted = cause.split('`').nth(1).unwrap_or_default();
    refused(if cause.starts_with("invalid value for option") {
        format!("the connection string has an invalid value for {quoted:?}{}", hint(quoted))
    } else if cause.starts_with("unknown option") && quoted == "sslrootcert" {
        format!("the connection string has the option {quoted:?}; give the file to `Database::tls_root_file` instead")
    } else if cause.starts_with("unknown option") && OTHERS.contains(&quoted) {
        format!("the connection string has the option {quoted:?}, which is not supported; leave it out")
    } else if cause.starts_with("unknown option") {
        "the connection string has an unknown option; check the spelling, and quote values that contain spaces"
            .to_owned()
    } else {
        "the connection string is malformed; write postgres://user:password@host:port/database or host=… dbname=… and \
         percent-encode or quote special characters"
            .to_owned()
    })
}

fn hint(option: &str) -> &'static str {
    match option {
        "sslmode" => "; it can be disable, prefer, require, or verify-ca and verify-full, which mean require",
        "port" => "; give numbers from 0 to 65535, and percent-encode `:`, `/` and `@` in a password",
        _ => "",
    }
}

fn check_hosts(config: &Config) -> Result<(), Error> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0 {
        return Err(refused(
            "no host is named; add one, for example host=localhost or host=/var/run/postgresql".to_owned(),
        ));
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        let (named, numbered) = (hosts.len(), addresses.len());
        return Err(refused(format!(
            "there are {named} hosts but {numbered} hostaddrs; give as many of each, or only one kind"
        )));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(refused(format!(
            "there are {} ports for {count} hosts; give one for all, or one for each",
            ports.len()
        )));
    }
    if hosts.iter().any(is_part_of_a_password) {
        return Err(refused("a host contains `@`; percent-encode that sign in the password as %40".to_owned()));
    }
    Ok(())
}

/// A URL's host begins after the first `@`, so a password with another one would end up in the host, and in logs.
fn is_part_of_a_password(host: &Host) -> bool {
    matches!(host, Host::Tcp(name) if name.contains('@'))
}

fn set_defaults(config: &mut Config) {
    // A worker and a queue have no use for a server that takes no writes.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_application_name().is_none() {
        config.application_name(DEFAULT_APPLICATION_NAME);
    }
    if config.get_connect_timeout().is_none_or(Duration::is_zero) {
        config.connect_timeout(DEFAULT_CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none_or(Duration::is_zero) {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    if config.get_keepalives_idle() == UNSET_KEEPALIVES_IDLE {
        config.keepalives_idle(KEEPALIVES_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVES_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVES_RETRIES);
    }
}

/// A schema's name that PostgreSQL takes as it is; it is never spliced in unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaName(String);

impl SchemaName {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let problem = if name.is_empty() {
            "is empty".to_owned()
        } else if name.len() > MAX_SCHEMA {
            format!("has {} bytes, at most {MAX_SCHEMA} are possible", name.len())
        } else if name.contains(char::is_control) {
            format!("{name:?} contains a control character")
        } else if name.starts_with("pg_") {
            format!("{name:?} begins with pg_, which PostgreSQL keeps for itself")
        } else {
            return Ok(Self(name.to_owned()));
        };
        Err(refused(format!("the schema's name {problem}; choose another name")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as an SQL identifier.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests;
