//! Carries: a plain one, and those whose own code is at fault.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

/// A carry that a script can add to.
pub(crate) trait Purse: Serialize + DeserializeOwned + Default + Send + Sync + 'static {
    fn add(&mut self, amount: i64);
    fn total(&self) -> i64;
}

macro_rules! counted {
    ($($name:ident),*) => {
        $(impl Purse for $name {
            fn add(&mut self, amount: i64) {
                self.0 += amount;
            }

            fn total(&self) -> i64 {
                self.0
            }
        })*
    };
}

counted!(Count, DefaultPanics, Unwritable, WritingPanics, Brittle);

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Count(i64);

/// Text with a NUL for each one that was added.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Words(String);

impl Purse for Words {
    fn add(&mut self, amount: i64) {
        (0..amount).for_each(|_| self.0.push('\0'));
    }

    fn total(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DefaultPanics(i64);

impl Default for DefaultPanics {
    fn default() -> Self {
        panic!("no default")
    }
}

/// Can be written as long as it is even.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Unwritable(i64);

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 2 == 0 { self.0.serialize(serializer) } else { Err(serde::ser::Error::custom("it is odd")) }
    }
}

/// Panics when it is written while it is odd.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct WritingPanics(i64);

impl Serialize for WritingPanics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 % 2 == 0, "writing an odd one");
        self.0.serialize(serializer)
    }
}

/// Panics when it is dropped while it is odd.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Brittle(i64);

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(self.0 % 2 == 0, "dropping an odd one");
    }
}
