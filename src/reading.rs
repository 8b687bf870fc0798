//! A stored job's payload and carry, decoded.
//!
//! Decoding is user code. It is guarded in here, since a panic must not unwind through another value of the user's.
#![deny(clippy::disallowed_methods)]

use serde::de::DeserializeOwned;

use crate::Task;
use crate::panic_boundary::{Contained, guarded};

/// Why a job has no task or no carry for this code.
pub(crate) enum Unreadable {
    Undecodable(String),
    /// The text says "panicked: …".
    Panicked(String),
}

impl Unreadable {
    pub(crate) fn into_text(self) -> String {
        let (Self::Undecodable(text) | Self::Panicked(text)) = self;
        text
    }
}

/// Decodes both; without a carry it is the default.
pub(crate) fn read<T: Task>(payload: &str, carry: Option<&str>) -> Result<(T, T::Carry), Unreadable> {
    let task: T = decode("payload", payload)?;
    let default = || guarded(T::Carry::default).map_err(Unreadable::Panicked);
    match carry.map_or_else(default, |carry| decode("carry", carry)) {
        Ok(carry) => Ok((task, carry)),
        Err(why) => {
            drop(Contained::new(task));
            Err(why)
        }
    }
}

fn decode<D: DeserializeOwned>(what: &str, json: &str) -> Result<D, Unreadable> {
    let decoded = guarded(|| serde_json::from_str(json)).map_err(Unreadable::Panicked)?;
    decoded.map_err(|error| Unreadable::Undecodable(format!("cannot decode the {what}: {error}")))
}
