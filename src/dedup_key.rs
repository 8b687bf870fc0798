//! The name under which a pending job is found again.
#![deny(clippy::disallowed_methods)]

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::limits::MAX_KEY;

/// The name that jobs of one kind share when one of them may stand for the others.
///
/// While a job of the kind with this key is pending, another one that is enqueued is merged into it, as
/// [`Task::merge`](crate::Task::merge) says. A job that runs or has ended is not pending.
///
/// 1 to 200 bytes without control characters; enqueueing checks it. Make a longer one short with a hash.
///
/// ```
/// use venturi::DedupKey;
///
/// assert_eq!(DedupKey::from("page:7"), DedupKey::new(format!("page:{}", 7)));
/// assert_eq!(DedupKey::from(7_u64).as_str(), "7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DedupKey(String);

impl DedupKey {
    /// A key of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, if it may be stored; the database checks it again.
    pub(crate) fn checked(self, kind: &str) -> Result<String, Error> {
        let problem = if self.0.is_empty() {
            "is empty; give `None` for a job that has none".to_owned()
        } else if self.0.len() > MAX_KEY {
            format!("has {} bytes, at most {MAX_KEY} are stored; use a hash of it", self.0.len())
        } else if self.0.chars().any(char::is_control) {
            format!("has a control character: {:?}", self.0)
        } else {
            return Ok(self.0);
        };
        Err(Error::new(ErrorKind::DedupKey, format!("the dedup key of a {kind} {problem}")))
    }
}

impl fmt::Display for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for DedupKey {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for DedupKey {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<u64> for DedupKey {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<i64> for DedupKey {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_must_be_short_printable_and_not_empty() {
        let refusal = |key: &str| DedupKey::from(key).checked("a").map_err(|error| error.kind());
        assert_eq!(refusal("é; x"), Ok("é; x".to_owned()));
        assert!(refusal(&"x".repeat(200)).is_ok());
        for key in ["", &"x".repeat(201), "a\nb", "a\0b", "a\u{85}b"] {
            assert_eq!(refusal(key), Err(ErrorKind::DedupKey), "{key:?}");
        }
    }
}
