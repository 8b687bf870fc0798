//! What a running handler asks the database through its worker.
#![deny(clippy::disallowed_methods)]

use std::fmt;

use crate::answer::Answerer;
use crate::job::{Json, RunId};
use crate::journal::JournalEntry;

/// A request, with the end that takes its answer.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Store this carry now, under the run's fence.
    Checkpoint { carry: Json, answerer: Answerer<()> },
    /// The newest entries of the job's journal.
    History { most: u32, answerer: Answerer<Vec<JournalEntry>> },
}

/// Where a handler's requests go: the front-end passes them to the engine.
pub(crate) trait Desk: Send + Sync {
    fn ask(&self, id: RunId, ask: Ask);
}

impl<F: Fn(RunId, Ask) + Send + Sync> Desk for F {
    fn ask(&self, id: RunId, ask: Ask) {
        self(id, ask);
    }
}

impl fmt::Debug for dyn Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}
