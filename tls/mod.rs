//! What the front-ends hand to the client so that it encrypts: one adaptor between rustls and `tokio_postgres` for both.
//!
//! Beside the core and not in it, because it reads and writes. It does so only while it is polled, on whatever socket it
//! is given, so it needs no runtime.

#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod encryption;
#[cfg(not(feature = "tls"))]
mod plain;
#[cfg(feature = "tls")]
mod stream;

#[cfg(all(feature = "tls", feature = "async"))]
pub(crate) use encryption::Connector;
#[cfg(feature = "tls")]
pub(crate) use encryption::Encryption;
#[cfg(all(not(feature = "tls"), feature = "async"))]
pub(crate) use plain::Connector;
#[cfg(not(feature = "tls"))]
pub(crate) use plain::Encryption;
