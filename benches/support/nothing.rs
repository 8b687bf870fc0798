//! A job that does nothing.

use serde::{Deserialize, Serialize};
use venturi::Task;

/// Bytes of its JSON text.
pub(crate) const PAYLOAD: usize = 185;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Nothing {
    text: String,
}

impl Nothing {
    pub(crate) fn new() -> Self {
        let around = r#"{"text":""}"#.len();
        Self { text: "x".repeat(PAYLOAD - around) }
    }
}

impl Task for Nothing {
    const KIND: &'static str = "nothing";
    type Carry = ();
}
