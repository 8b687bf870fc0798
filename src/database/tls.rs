//! Whether connections are encrypted, and what that takes.
#![deny(clippy::disallowed_methods)]

#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
#[cfg(feature = "tls")]
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

use crate::error::Error;
#[cfg(feature = "tls")]
use crate::panic_boundary::guarded;

use super::{Database, refused};

#[cfg(feature = "tls")]
const REMEDY: &str = "call `Database::tls` or `Database::tls_root_file`";
#[cfg(not(feature = "tls"))]
const REMEDY: &str = "build venturi with its feature `tls`";

#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
impl Database {
    /// Encrypts connections with these settings of rustls.
    ///
    /// Where it is used says the `sslmode` of the connection string: with `require`, always; with `prefer`, which is the
    /// default, unless the server has no TLS, and then nothing stands between the data and whoever is on the line;
    /// with `disable`, never. `verify-ca` and `verify-full` are read as `require`. In all of them the settings decide
    /// which certificates are accepted; as rustls makes them, that is one of a trusted authority, in its time, and for
    /// the host's name: its `host`, or `hostaddr` where no `host` is given. With `prefer`, too, a handshake that fails
    /// is an error, and not a reason to go on in plain text.
    ///
    /// Unix sockets are never encrypted. `channel_binding=require` makes sure that nobody between the two ends has
    /// a trusted certificate of his own; it takes a password and a certificate whose signature names its hash, so neither
    /// RSA-PSS nor Ed25519. `sslnegotiation=direct` saves a round trip with PostgreSQL 17 and later.
    ///
    /// The crypto provider is the application's choice, by a feature of rustls (`ring`, `aws_lc_rs`) or otherwise.
    ///
    /// ```
    /// use rustls::{ClientConfig, RootCertStore};
    /// use venturi::Database;
    ///
    /// # fn main() -> Result<(), venturi::Error> {
    /// let trusted = RootCertStore::empty(); // and the certificates of the authorities that you trust
    /// let settings = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    /// let database = Database::new("postgres://worker@db.example.org/app?sslmode=require")?.tls(settings);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tls(mut self, settings: impl Into<Arc<ClientConfig>>) -> Self {
        self.tls = Some(settings.into());
        self
    }

    /// Encrypts connections as [`tls`](Self::tls) does, and trusts the authorities whose certificates are in this file.
    ///
    /// The file is what libpq calls `sslrootcert`: certificates in PEM. It is read now, and never again. The crypto
    /// provider is the one that the process has installed, or else the one that rustls was built with.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), venturi::Error> {
    /// let database = venturi::Database::new("postgres://worker@db.example.org/app?sslmode=require")?
    ///     .tls_root_file("/etc/ssl/db-ca.pem")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the file cannot be read or holds no certificate, and when
    /// there is no crypto provider, or more than one and none is installed.
    pub fn tls_root_file(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let trusted = certificates(path.as_ref())?;
        // Without a provider rustls panics.
        let builder = guarded(ClientConfig::builder).map_err(|_| {
            refused(
                "rustls has no crypto provider, or several: build it with one of its features `ring` and `aws_lc_rs`, \
                 or install one at the start, as with `rustls::crypto::ring::default_provider().install_default()`"
                    .to_owned(),
            )
        })?;
        Ok(self.tls(builder.with_root_certificates(trusted).with_no_client_auth()))
    }

    /// Lets no connection be in plain text, as `sslmode=require` in the connection string does.
    ///
    /// It needs settings: [`tls`](Self::tls) or [`tls_root_file`](Self::tls_root_file). Unix sockets stay as they are: as in
    /// libpq, they are not encrypted, and that is no error.
    #[must_use]
    pub fn require_tls(mut self) -> Self {
        self.config.ssl_mode(SslMode::Require);
        self
    }

    pub(crate) fn tls_config(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }
}

#[cfg(feature = "tls")]
fn certificates(path: &Path) -> Result<RootCertStore, Error> {
    let unusable = |why: &dyn std::fmt::Display| refused(format!("the root certificates in {}: {why}", path.display()));
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        trusted.add(certificate).map_err(|error| unusable(&error))?;
    }
    if trusted.is_empty() { Err(unusable(&"there is none in PEM")) } else { Ok(trusted) }
}

impl Database {
    /// Whether connections have to be encrypted: `sslmode=require` (or `verify-ca`, `verify-full`), and a host that is not a
    /// Unix socket.
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require && !all_local(&self.config)
    }

    /// How a host is to be spoken to. A socket of the same machine is never encrypted, as nobody can listen there.
    pub(crate) fn ssl_mode(&self, host: Option<&Host>) -> SslMode {
        if is_local(host) || !self.can_encrypt() { SslMode::Disable } else { self.config.get_ssl_mode() }
    }

    /// Refuses settings that no connection could follow.
    ///
    /// Apart from making them, since the settings of TLS come after the connection string.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), with what to do about it.
    pub(crate) fn check_tls(&self) -> Result<(), Error> {
        let config = &self.config;
        let mode = config.get_ssl_mode();
        let bound = config.get_channel_binding() == ChannelBinding::Require;
        let local = all_local(config);
        if bound && (local || mode == SslMode::Disable) {
            let why = if local { "a Unix socket has none" } else { "sslmode=disable rules it out" };
            return Err(refused(format!("channel_binding=require needs TLS, and {why}")));
        }
        if local {
            return Ok(());
        }
        if (bound || mode == SslMode::Require) && !self.can_encrypt() {
            let option = if bound { "channel_binding" } else { "sslmode" };
            let elsewise = if bound { "prefer" } else { "prefer or disable" };
            return Err(refused(format!(
                "{option}=require needs TLS, for which there are no settings; {REMEDY}, or use {elsewise}"
            )));
        }
        if mode == SslMode::Prefer && config.get_ssl_negotiation() == SslNegotiation::Direct {
            return Err(refused("sslnegotiation=direct takes sslmode=require".to_owned()));
        }
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn can_encrypt(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "the same question as with the feature")]
    fn can_encrypt(&self) -> bool {
        false
    }
}

fn is_local(host: Option<&Host>) -> bool {
    !matches!(host, None | Some(Host::Tcp(_)))
}

fn all_local(config: &Config) -> bool {
    !config.get_hosts().is_empty() && config.get_hosts().iter().all(|host| is_local(Some(host)))
}

/// A connection string that says `require` where it said `verify-ca` or `verify-full`, which the client does not know;
/// nothing when that is not what is wrong with it. Certificates are verified in any case.
///
/// Where the words stand twice, one of them may be a part of a password; then it stays as it is.
pub(super) fn requiring(dsn: &str) -> Option<String> {
    let words = ["sslmode=verify-full", "sslmode=verify-ca"];
    let found: Vec<_> = words.iter().flat_map(|word| dsn.match_indices(word)).collect();
    let [(at, word)] = found.as_slice() else { return None };
    let (before, after) = (dsn.get(..*at)?, dsn.get(at + word.len()..)?);
    Some(format!("{before}sslmode=require{after}"))
}
