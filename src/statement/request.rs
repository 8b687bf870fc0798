//! What is asked, and how it becomes parameters: one array per column, so that a statement takes any number of rows.
#![deny(clippy::disallowed_methods)]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_postgres::types::Json as AsJson;

use crate::job::{Json, RunId};
use crate::limits::MAX_DELAY;
use crate::{Priority, interest, notification};

use super::param::Stamp;
use super::{Param, Parameter, Text};

/// How a run's row goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Completed,
    Dead,
    /// What a settlement makes of whatever else but completed, if the job was asked to end.
    Cancelled,
    Retried,
    Paused,
    Released,
}

impl Ending {
    /// The number that `finished.outcome` and `journal.event` hold.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Completed => 3,
            Self::Dead => 4,
            Self::Cancelled => 5,
            Self::Retried => 6,
            Self::Paused => 7,
            Self::Released => 8,
        }
    }

    /// The word that the views show.
    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        crate::JournalEvent::from(self).as_str()
    }
}

/// Up to `want` jobs of these kinds. `kinds`, `leases` and `room` go together.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) worker: Arc<str>,
    pub(crate) kinds: Vec<&'static str>,
    /// Seconds.
    pub(crate) leases: Vec<f64>,
    /// How many more of each kind may be taken.
    pub(crate) room: Vec<i32>,
    /// The most urgent priority that is taken, as its code; 0 takes all.
    pub(crate) floor: i32,
    pub(crate) want: i32,
    /// How much deeper to look than `want`.
    pub(crate) spare: i32,
    /// Seconds.
    pub(crate) look_back: f64,
    /// Jobs to leave alone, because an earlier run of theirs is still going here.
    pub(crate) skip: Vec<i64>,
    /// Whether to wait until the claim is on disk, if nothing is settled with it.
    pub(crate) durable: bool,
    /// Where to begin; nothing: at the beginning.
    pub(crate) bounds: Option<Bounds>,
}

/// The first keys that a claim looks at: one for each of its kinds and, within it, each priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// `None`: from the beginning.
    pub(crate) created_at: Vec<Option<SystemTime>>,
    pub(crate) ids: Vec<i64>,
}

impl Claim {
    pub(super) fn text(&self) -> Text {
        match self.bounds {
            Some(_) => Text::ClaimFrom,
            None if self.has_many_kinds() => Text::ClaimMany,
            None => Text::Claim,
        }
    }

    /// More than rows that are looked at, so that some need not be looked through.
    fn has_many_kinds(&self) -> bool {
        let depth = usize::try_from(self.want.saturating_add(self.spare)).unwrap_or(0);
        self.kinds.len() > depth
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        debug_assert!(
            self.kinds.len() == self.leases.len() && self.kinds.len() == self.room.len(),
            "each kind has its lease and its room"
        );
        let mut params: Vec<Param<'_>> = vec![
            Box::new(self.worker.to_string()),
            Box::new(self.leases.iter().copied().map(seconds).collect::<Vec<_>>()),
            Box::new(self.kinds.clone()),
            Box::new(self.room.clone()),
            Box::new(self.floor),
            Box::new(self.want),
            Box::new(self.spare),
            Box::new(bounded(self.look_back)),
            Box::new(self.skip.clone()),
        ];
        if let Some(Bounds { created_at, ids }) = &self.bounds {
            params.push(Box::new(created_at.iter().map(|at| at.map(Stamp::from)).collect::<Vec<_>>()));
            params.push(Box::new(ids.clone()));
        }
        params
    }
}

/// A running job's carry, to be stored now.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) worker: Arc<str>,
    pub(crate) id: RunId,
    pub(crate) carry: Json,
}

impl Checkpoint {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            Box::new(self.worker.to_string()),
            Box::new(self.id.job),
            Box::new(self.id.run),
            Box::new(AsJson(&*self.carry)),
        ]
    }
}

/// A running job that is completed in a transaction of its handler.
#[derive(Clone, Debug)]
pub(crate) struct Complete {
    pub(crate) worker: Arc<str>,
    pub(crate) id: RunId,
    pub(crate) note: Option<String>,
    pub(crate) attachment: Option<Json>,
}

impl Complete {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            Box::new(self.worker.to_string()),
            Box::new(self.id.job),
            Box::new(self.id.run),
            Box::new(self.note.as_deref()),
            Box::new(self.attachment.as_deref().map(AsJson)),
        ]
    }
}

/// The claims of a worker, and what became of the runs that it knows of.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) worker: Arc<str>,
    pub(crate) runs: Vec<RunId>,
}

impl Held {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let runs: Vec<&RunId> = self.runs.iter().collect();
        vec![Box::new(self.worker.to_string()), column(&runs, |id| id.job), column(&runs, |id| id.run)]
    }
}

/// The newest entries of a job's journal.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) job: i64,
    pub(crate) most: i32,
}

impl History {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![Box::new(self.job), Box::new(self.most)]
    }
}

/// Results of runs of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Settle {
    pub(crate) worker: Arc<str>,
    pub(crate) rows: Vec<Settlement>,
    /// Completed jobs are deleted instead of kept.
    pub(crate) discard: bool,
    /// All rows are completed, and only those that are accepted are answered.
    pub(crate) brief: bool,
}

/// What became of one run.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) id: RunId,
    pub(crate) outcome: Ending,
    /// Seconds until it may run again; for retried and paused.
    pub(crate) delay: f64,
    pub(crate) note: Option<String>,
    pub(crate) attachment: Option<Json>,
    /// `None`: the stored one stays.
    pub(crate) carry: Option<Json>,
}

impl Settle {
    pub(super) fn text(&self) -> Text {
        match (self.brief, self.discard) {
            (true, true) => Text::SettleDiscarded,
            (true, false) => Text::SettleCompleted,
            (false, _) => Text::Settle,
        }
    }

    /// Rows are locked in the order in which they come, so they go in the order of their ids.
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let mut rows: Vec<&Settlement> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.id);
        let mut params: Vec<Param<'_>> =
            vec![Box::new(self.worker.to_string()), column(&rows, |row| row.id.job), column(&rows, |row| row.id.run)];
        let text = self.text();
        if text == Text::Settle {
            params.push(column(&rows, |row| row.outcome.code()));
            params.push(column(&rows, |row| seconds(row.delay)));
        }
        if text == Text::SettleCompleted {
            rows.retain(|row| row.note.is_some() || row.attachment.is_some());
            params.push(column(&rows, |row| row.id.job));
        }
        if text != Text::SettleDiscarded {
            params.push(column(&rows, |row| row.note.as_deref()));
            params.push(column(&rows, |row| row.attachment.as_deref().map(AsJson)));
        }
        if text == Text::Settle {
            params.push(column(&rows, |row| row.carry.as_deref().map(AsJson)));
            params.push(Box::new(self.discard));
        }
        params
    }
}

/// Claims of other workers that have run out.
#[derive(Clone, Debug)]
pub(crate) struct Stale {
    pub(crate) worker: Arc<str>,
    /// Seconds.
    pub(crate) look_back: f64,
    pub(crate) most: i32,
}

impl Stale {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![Box::new(bounded(self.look_back)), Box::new(self.most), Box::new(self.worker.to_string())]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Recover {
    pub(crate) rows: Vec<Recovery>,
}

/// What is to become of one claim that has run out.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) id: RunId,
    /// By whom it was claimed when it was found.
    pub(crate) claimed_by: String,
    pub(crate) dead: bool,
    /// Seconds until it may run again.
    pub(crate) delay: f64,
}

impl Recover {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let mut rows: Vec<&Recovery> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.id);
        vec![
            column(&rows, |row| row.id.job),
            column(&rows, |row| row.id.run),
            column(&rows, |row| row.claimed_by.as_str()),
            column(&rows, |row| row.dead),
            column(&rows, |row| seconds(row.delay)),
        ]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Promote {
    pub(crate) kinds: Vec<&'static str>,
    /// Seconds.
    pub(crate) look_back: f64,
    /// Rows per kind.
    pub(crate) most: i32,
}

impl Promote {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![Box::new(self.kinds.clone()), Box::new(bounded(self.look_back)), Box::new(self.most)]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) worker: Arc<str>,
    /// Seconds.
    pub(crate) look_back: f64,
    /// Seconds until the next survey.
    pub(crate) horizon: f64,
    /// Those of the kinds of which more may run.
    pub(crate) open: Vec<&'static str>,
    /// Jobs to leave alone, as in a claim.
    pub(crate) skip: Vec<i64>,
}

impl Survey {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            Box::new(self.kinds.clone()),
            Box::new(self.worker.to_string()),
            Box::new(bounded(self.look_back)),
            Box::new(seconds(self.horizon)),
            Box::new(self.open.clone()),
            Box::new(self.skip.clone()),
        ]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Renew {
    pub(crate) worker: Arc<str>,
    /// With the lease from now on, in seconds.
    pub(crate) rows: Vec<(RunId, f64)>,
}

impl Renew {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let mut rows: Vec<&(RunId, f64)> = self.rows.iter().collect();
        rows.sort_by_key(|(id, _)| *id);
        vec![
            Box::new(self.worker.to_string()),
            column(&rows, |(id, _)| id.job),
            column(&rows, |(id, _)| id.run),
            column(&rows, |(_, lease)| seconds(*lease)),
        ]
    }
}

/// What workers are told.
#[derive(Clone, Debug)]
pub(crate) struct Notify {
    pub(crate) channel: String,
    pub(crate) payload: String,
    /// Of those whom it concerns; none: everybody.
    pub(crate) keys: Vec<i64>,
}

impl Notify {
    /// That jobs of these kinds (none: of any) become claimable after `due_in`, and that these running ones shall end,
    /// whose kinds nobody here knows.
    pub(crate) fn new(channel: &str, kinds: &[&str], due_in: Duration, cancelled: &[i64]) -> Self {
        let keys = if cancelled.is_empty() { interest::in_news_of(channel, kinds) } else { Vec::new() };
        Self { channel: channel.to_owned(), payload: notification::encode_all(kinds, due_in, cancelled), keys }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![Box::new(&self.channel), Box::new(&self.payload), Box::new(&self.keys)]
    }
}

/// The jobs of several calls, which become one insert.
#[derive(Clone, Debug)]
pub(crate) struct Enqueue {
    pub(crate) calls: Vec<NewJobs>,
    /// The channel where workers hear of it with the commit; `None`: they are told afterwards.
    pub(crate) channel: Option<String>,
}

/// Jobs that are stored together. Shared, because a call keeps them until it knows that they are stored.
#[derive(Clone, Debug)]
pub(crate) struct NewJobs {
    rows: Arc<Vec<NewJob>>,
    bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) priority: Priority,
    pub(crate) payload: Json,
    pub(crate) dedup_key: Option<String>,
    /// Seconds from now; 0: ready at once.
    pub(crate) delay: f64,
    /// Instead of `delay`: the instant that is stored; past ones count as now.
    pub(crate) due_at: Option<SystemTime>,
    pub(crate) trace: Option<String>,
}

impl NewJob {
    /// Bytes of its payload.
    pub(crate) fn size(&self) -> usize {
        self.payload.get().len()
    }
}

impl NewJobs {
    pub(crate) fn new(rows: Vec<NewJob>) -> Self {
        let bytes = rows.iter().map(NewJob::size).sum();
        Self { rows: Arc::new(rows), bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of the payloads.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn rows(&self) -> &[NewJob] {
        &self.rows
    }
}

impl Enqueue {
    pub(crate) fn len(&self) -> usize {
        self.calls.iter().map(NewJobs::len).sum()
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let rows: Vec<&NewJob> = self.calls.iter().flat_map(NewJobs::rows).collect();
        vec![
            column(&rows, |row| &*row.kind),
            column(&rows, |row| row.priority.code()),
            column(&rows, |row| AsJson(&*row.payload)),
            column(&rows, |row| row.dedup_key.as_deref()),
            column(&rows, |row| seconds(row.delay)),
            column(&rows, |row| row.due_at.map(Stamp::from)),
            Box::new(self.channel.as_deref()),
            Box::new(self.channel.is_some().then(|| kinds(&rows))),
            column(&rows, |row| row.trace.as_deref()),
        ]
    }
}

/// What workers are told about these jobs, without the time.
fn kinds(rows: &[&NewJob]) -> String {
    let kinds: BTreeSet<&str> = rows.iter().map(|row| &*row.kind).collect();
    notification::encode_kinds(&kinds.into_iter().collect::<Vec<_>>())
}

pub(super) fn column<'a, R, T>(rows: &[&'a R], value: impl Fn(&'a R) -> T) -> Param<'a>
where
    Vec<T>: Parameter + 'a,
{
    Box::new(rows.iter().map(|row| value(row)).collect::<Vec<T>>())
}

/// A look-back, as the statements take it; nothing: without bound.
fn bounded(look_back: f64) -> Option<f64> {
    Some(seconds(look_back)).filter(|seconds| *seconds < MAX_DELAY.as_secs_f64())
}

/// Within what an interval takes and a sum with `now()` can bear: a statement must not fail for an absurd number.
pub(super) fn seconds(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, MAX_DELAY.as_secs_f64()) }
}
