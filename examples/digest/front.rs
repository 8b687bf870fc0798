//! The choice between the two front-ends.

use std::str::FromStr;

use venturi::{CancellationToken, Database, ShutdownReport};

use crate::Result;
use crate::arguments::Arguments;
use crate::results::Results;
use crate::task::DigestFile;
use crate::{asynchronous, blocking};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Front {
    Blocking,
    Async,
}

impl Front {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }

    pub(crate) fn migrate(self, database: &Database) -> Result<()> {
        match self {
            Self::Blocking => blocking::migrate(database),
            Self::Async => asynchronous::migrate(database),
        }
    }

    /// Returns how many jobs were enqueued: all of them unless `stop` was cancelled.
    pub(crate) fn enqueue(self, database: &Database, tasks: &[DigestFile], stop: &CancellationToken) -> Result<usize> {
        match self {
            Self::Blocking => blocking::enqueue(database, tasks, stop),
            Self::Async => asynchronous::enqueue(database, tasks, stop),
        }
    }

    /// Runs workers until `enough` is cancelled; one that fails cancels it for all.
    pub(crate) fn work(
        self,
        database: &Database,
        results: &Results,
        arguments: &Arguments,
        enough: &CancellationToken,
    ) -> Result<Vec<ShutdownReport>> {
        match self {
            Self::Blocking => blocking::work(database, results, arguments, enough),
            Self::Async => asynchronous::work(database, results, arguments, enough),
        }
    }
}

impl FromStr for Front {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "blocking" => Ok(Self::Blocking),
            "async" => Ok(Self::Async),
            _ => Err(format!("--front takes blocking or async, not {name:?}")),
        }
    }
}
