use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use super::error::ClusterError;

/// Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152).
///
/// Inside that range a stopped server's port can go to somebody's client before the restart, and a client that retries
/// a port on which nobody listens can even connect to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
const TRIES: usize = 500;

/// A port of 127.0.0.1 that nobody listens on at this moment.
pub(super) fn free() -> Result<u16, ClusterError> {
    std::iter::repeat_with(candidate)
        .take(TRIES)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| {
            ClusterError::new(format!("no free TCP port found on 127.0.0.1 from {FIRST} to {}", FIRST + COUNT - 1))
        })
}

/// At random, so that harnesses that start together rarely look at the same port.
fn candidate() -> u16 {
    let offset = random() % u64::from(COUNT);
    FIRST + u16::try_from(offset).unwrap_or_default()
}

/// Each `RandomState` has keys of its own: enough randomness for names and ports, without a crate.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
