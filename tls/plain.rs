//! The same types where the feature `tls` is off: nothing is ever encrypted.

#[cfg(feature = "blocking")]
use std::convert::Infallible;

use tokio_postgres::NoTls;
#[cfg(feature = "blocking")]
use tokio_postgres::tls::{MakeTlsConnect, NoTlsStream};

use crate::Database;

#[derive(Clone, Debug)]
pub(crate) struct Encryption;

#[cfg(feature = "async")]
pub(crate) type Connector = NoTls;

impl Encryption {
    pub(crate) fn of(_: &Database) -> Self {
        Self
    }

    #[cfg(feature = "async")]
    pub(crate) fn connector(&self, _: &str) -> Connector {
        NoTls
    }
}

#[cfg(feature = "blocking")]
impl<S> MakeTlsConnect<S> for Encryption {
    type Stream = NoTlsStream;
    type TlsConnect = NoTls;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<NoTls, Infallible> {
        Ok(NoTls)
    }
}
