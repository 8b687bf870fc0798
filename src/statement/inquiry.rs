//! What is asked about jobs, and done to them, from outside a run: statements that stand for themselves, which a queue
//! sends one after the other.
#![deny(clippy::disallowed_methods)]

use std::sync::Arc;

use crate::filter::JobFilter;
use crate::inventory;
use crate::job::RunId;
use crate::job_info::JobStatus;

use super::request::seconds;
use super::{Command, Param, Parameter, Text};

#[derive(Clone, Debug)]
pub(crate) enum Inquiry {
    Job(i64),
    Find(Find),
    Journal {
        job: i64,
        after: i64,
        most: i32,
    },
    Stats,
    PausedKinds,
    Workers,
    Diagnose,
    Inventory,
    BackendAge,
    /// Tells whoever listens, whatever they are interested in.
    Announce {
        channel: String,
        text: String,
    },
    Cancel(Touch),
    Requeue(Touch),
    PauseKind(String),
    ResumeKind(String),
    Cleanup(CleanupBatch),
    /// How many jobs of these statuses have ended at least so many seconds ago.
    CleanupCount(Vec<(JobStatus, f64)>),
    /// Which of these runs of this worker were asked to end.
    Cancellations {
        worker: Arc<str>,
        runs: Vec<RunId>,
    },
}

/// A look at the newest jobs below a number.
#[derive(Clone, Debug)]
pub(crate) struct Find {
    pub(crate) filter: Arc<JobFilter>,
    pub(crate) statuses: Vec<JobStatus>,
    pub(crate) below: i64,
    /// Rows of each table that are looked at.
    pub(crate) look: i32,
    /// Rows that are returned.
    pub(crate) most: i32,
    pub(crate) content: bool,
}

/// Jobs to which something is done.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) ids: Vec<i64>,
    /// Which statuses may be touched.
    pub(crate) statuses: Vec<JobStatus>,
    /// A busy row is no answer for whoever asks.
    pub(crate) patient: bool,
}

/// The oldest finished jobs of one status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CleanupBatch {
    pub(crate) status: JobStatus,
    /// Seconds since the end, at least.
    pub(crate) age: f64,
    /// How far an earlier batch came, in seconds since 1970.
    pub(crate) from: f64,
    pub(crate) most: i32,
}

impl Inquiry {
    pub(crate) fn commands(&self) -> Vec<Command<'_>> {
        let (text, params) = match self {
            Self::Job(id) => (Text::Job, vec![param(*id)]),
            Self::Find(find) => (Text::Find, find.params()),
            Self::Journal { job, after, most } => (Text::Journal, vec![param(*job), param(*after), param(*most)]),
            Self::Stats => (Text::Stats, Vec::new()),
            Self::PausedKinds => (Text::PausedKinds, Vec::new()),
            Self::Workers => (Text::Workers, Vec::new()),
            Self::Diagnose => (Text::Diagnose, Vec::new()),
            Self::Inventory => (Text::Inventory, inventory()),
            Self::BackendAge => (Text::BackendAge, Vec::new()),
            Self::Announce { channel, text } => {
                (Text::Notify, vec![param(channel), param(text), param(Vec::<i64>::new())])
            }
            Self::Cancel(touch) => (Text::Cancel, cancel(touch)),
            Self::Requeue(touch) => return requeue(touch),
            Self::PauseKind(kind) => (Text::PauseKind, vec![param(kind)]),
            Self::ResumeKind(kind) => (Text::ResumeKind, vec![param(kind)]),
            Self::Cleanup(batch) => (Text::Cleanup, batch.params()),
            Self::CleanupCount(ages) => (Text::CleanupCount, count(ages)),
            Self::Cancellations { worker, runs } => (Text::Cancellations, cancellations(worker, runs)),
        };
        vec![Command::new(text, params)]
    }

    /// Whether it changes anything, so that nobody knows what became of it when its answer is lost.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Self::Job(_)
            | Self::Find(_)
            | Self::Journal { .. }
            | Self::Stats
            | Self::PausedKinds
            | Self::Workers
            | Self::Diagnose
            | Self::Inventory
            | Self::BackendAge
            | Self::Announce { .. }
            | Self::CleanupCount(_)
            | Self::Cancellations { .. } => false,
            Self::Cancel(_) | Self::Requeue(_) | Self::PauseKind(_) | Self::ResumeKind(_) | Self::Cleanup(_) => true,
        }
    }

    /// Whether a busy row is no answer.
    pub(crate) fn is_patient(&self) -> bool {
        match self {
            Self::Cancel(touch) | Self::Requeue(touch) => touch.patient,
            _ => false,
        }
    }

    /// What is being done, for an error's message.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            Self::Job(_) => "reading a job",
            Self::Find(_) => "listing jobs",
            Self::Journal { .. } => "reading a journal",
            Self::Stats => "counting jobs",
            Self::PausedKinds => "listing paused kinds",
            Self::Workers => "listing workers",
            Self::Diagnose | Self::Inventory | Self::BackendAge | Self::Announce { .. } => "diagnosing",
            Self::Cancel(_) => "cancelling",
            Self::Requeue(_) => "requeueing",
            Self::PauseKind(_) => "pausing a kind",
            Self::ResumeKind(_) => "resuming a kind",
            Self::Cleanup(_) => "deleting finished jobs",
            Self::CleanupCount(_) => "counting finished jobs",
            Self::Cancellations { .. } => "looking for cancellations",
        }
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Requeue(_) => "requeue",
            _ => self.commands().first().map_or("", |command| command.text.name()),
        }
    }
}

impl Find {
    fn params(&self) -> Vec<Param<'_>> {
        let filter = &self.filter;
        let ((created_from, created_until), (finished_from, finished_until)) =
            (filter.created.seconds(), filter.finished.seconds());
        vec![
            codes(&self.statuses),
            param(self.below),
            param(&filter.kind),
            param(&filter.dedup_key),
            param(created_from),
            param(created_until),
            param(finished_from),
            param(finished_until),
            param(self.look),
            param(self.most),
            param(self.content),
        ]
    }
}

impl CleanupBatch {
    fn params(&self) -> Vec<Param<'_>> {
        vec![param(self.status.code()), param(seconds(self.age)), param(self.from), param(self.most)]
    }
}

fn cancel(touch: &Touch) -> Vec<Param<'_>> {
    let may = |status| param(touch.statuses.contains(&status));
    vec![param(&touch.ids), may(JobStatus::Pending), may(JobStatus::Claimed)]
}

/// The locks on dedup keys first, in a statement of their own: the second one must see what their last holders did.
fn requeue(touch: &Touch) -> Vec<Command<'_>> {
    let locks = Command::new(Text::LockKeys, vec![param(&touch.ids)]);
    let requeue = Command::new(Text::Requeue, vec![param(&touch.ids), codes(&touch.statuses)]);
    vec![locks, requeue]
}

fn inventory() -> Vec<Param<'static>> {
    let (relations, functions) = inventory::names();
    vec![param(relations), param(functions)]
}

fn count(ages: &[(JobStatus, f64)]) -> Vec<Param<'static>> {
    let (statuses, ages): (Vec<JobStatus>, Vec<f64>) =
        ages.iter().map(|(status, age)| (*status, seconds(*age))).unzip();
    vec![codes(&statuses), param(ages)]
}

fn cancellations<'a>(worker: &'a str, runs: &[RunId]) -> Vec<Param<'a>> {
    let (ids, numbers): (Vec<i64>, Vec<i32>) = runs.iter().map(|id| (id.job, id.run)).unzip();
    vec![param(worker), param(ids), param(numbers)]
}

fn codes(statuses: &[JobStatus]) -> Param<'static> {
    param(statuses.iter().map(|status| status.code()).collect::<Vec<_>>())
}

fn param<'a>(value: impl Parameter + 'a) -> Param<'a> {
    Box::new(value)
}
