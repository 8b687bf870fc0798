//! What a worker that stopped by itself has done.

use crate::stint::Ran;
use crate::{JobId, JournalEvent, ShutdownReport};

/// What ran until nothing was due.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Drained {
    /// The runs whose results were stored, in that order. A job that was retried at once is in it more than once; one
    /// that was recovered from another worker is in it only if it ran.
    pub ran: Vec<Ran>,
    /// What a worker tells when it stops.
    pub report: ShutdownReport,
}

impl Drained {
    pub(crate) fn new(mut report: ShutdownReport) -> Self {
        Self { ran: std::mem::take(&mut report.ran), report }
    }

    /// How many runs ended like this.
    ///
    /// What is counted are runs, so a job that failed twice and was then done counts twice as
    /// [`Retried`](JournalEvent::Retried) and once as [`Completed`](JournalEvent::Completed).
    #[must_use]
    pub fn count(&self, outcome: JournalEvent) -> usize {
        self.ran.iter().filter(|ran| ran.outcome == outcome).count()
    }

    /// How the runs of this job ended, in order.
    #[must_use]
    pub fn outcomes_of(&self, job: JobId) -> Vec<JournalEvent> {
        self.ran.iter().filter(|ran| ran.job == job).map(|ran| ran.outcome).collect()
    }
}
