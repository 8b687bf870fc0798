//! From a socket to an encrypted stream, with the application's rustls settings.

use std::error::Error as StdError;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslNegotiation;
#[cfg(feature = "blocking")]
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::tls::TlsConnect;
use tokio_rustls::{Connect, TlsConnector};

use crate::Database;

use super::stream::Encrypted;

/// What servers want to see when the handshake comes without being announced.
const PROTOCOL: &[u8] = b"postgresql";

/// Makes connectors, one for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Encryption(Option<Arc<ClientConfig>>);

impl Encryption {
    pub(crate) fn of(database: &Database) -> Self {
        let direct = database.config().get_ssl_negotiation() == SslNegotiation::Direct;
        Self(database.tls_config().map(|config| if direct { announcing(config) } else { Arc::clone(config) }))
    }

    /// For a server whose certificate has to be for `name`, a host name or an address.
    pub(crate) fn connector(&self, name: &str) -> Connector {
        Connector { config: self.0.clone(), name: name.to_owned() }
    }
}

/// The settings with the protocol's name in them, unless they name some already.
fn announcing(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    if !config.alpn_protocols.is_empty() {
        return Arc::clone(config);
    }
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Arc::new(config)
}

/// Encrypts one connection.
pub(crate) struct Connector {
    config: Option<Arc<ClientConfig>>,
    name: String,
}

impl Connector {
    fn begin<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S) -> Result<Connect<S>, Error> {
        let refused = |why: String| Error::new(ErrorKind::InvalidInput, why);
        let config = self.config.ok_or_else(|| refused("there are no settings for TLS".to_owned()))?;
        let name = ServerName::try_from(self.name)
            .map_err(|_| refused("the host's name is none that a certificate can be for".to_owned()))?;
        Ok(TlsConnector::from(config).connect(name, stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type Error = Error;
    type Future = Handshake<S>;

    fn connect(self, stream: S) -> Handshake<S> {
        self.begin(stream).map_or_else(|error| Handshake::Refused(Some(error)), |it| Handshake::Going(Box::new(it)))
    }
}

#[cfg(feature = "blocking")]
impl<S: AsyncRead + AsyncWrite + Unpin> MakeTlsConnect<S> for Encryption {
    type Stream = Encrypted<S>;
    type TlsConnect = Connector;
    type Error = Error;

    /// Asked for also where nothing will be encrypted; so the name is looked at later.
    fn make_tls_connect(&mut self, name: &str) -> Result<Connector, Error> {
        Ok(self.connector(name))
    }
}

pub(crate) enum Handshake<S> {
    Refused(Option<Error>),
    /// Boxed for its size: it lives for a moment in a future that lives long.
    Going(Box<Connect<S>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Handshake<S> {
    type Output = Result<Encrypted<S>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Refused(error) => error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            Self::Going(connect) => Pin::new(connect).poll(cx).map_ok(Encrypted::new).map_err(explained),
        }
    }
}

/// The error with what to do about it, where rustls has refused the server or the server has refused us.
fn explained(error: Error) -> Error {
    let kind = error.kind();
    match error.downcast::<rustls::Error>() {
        Ok(cause) => Error::new(kind, Refusal(cause)),
        Err(error) => error,
    }
}

#[derive(Debug)]
struct Refusal(rustls::Error);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, advice(&self.0))
    }
}

impl StdError for Refusal {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

fn advice(error: &rustls::Error) -> &'static str {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "; trust the authority that signed the server's certificate: give its own to `Database::tls_root_file`, or \
             add it to the settings that `Database::tls` gets"
        }
        rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "; renew the server's certificate, and check this machine's clock"
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "; check the clocks of this machine and of the one that made the certificate"
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "; connect by a name that the certificate is for, with `hostaddr` beside it if that leads elsewhere"
        }
        rustls::Error::AlertReceived(_) => "; the server's log says why it refused",
        _ => "",
    }
}
