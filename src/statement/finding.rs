//! The answers to inquiries, parsed. A row that makes no sense never fails its neighbours.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;

use log::Level;
use tokio_postgres::Row;

use crate::doctor::{Facts, Numbers, Taken};
use crate::inventory::{Class, Piece};
use crate::job::RunId;
use crate::job_info::{JobInfo, JobStatus};
use crate::journal::{JournalEntry, JournalEvent};
use crate::notice::notice;
use crate::stats::{KindStats, PausedKind, Stats, WorkerClaims};
use crate::{JobId, time};

use super::inquiry::Inquiry;
use super::reply::{ReadError, count, each, get, journal_entry, json, only, priority, run_id, status, unsigned};

/// The answer to an inquiry.
#[derive(Debug)]
pub(crate) enum Finding {
    Job(Option<Box<JobInfo>>),
    Jobs(FoundJobs),
    Journal(FoundJournal),
    Stats(Stats),
    PausedKinds(Vec<PausedKind>),
    Workers(Vec<WorkerClaims>),
    Facts(Box<Facts>),
    Inventory(Vec<Piece>),
    /// Seconds.
    BackendAge(f64),
    Announced,
    Cancelled(Vec<(i64, CancelAnswer)>),
    Requeued(Vec<(i64, RequeueAnswer)>),
    /// Whether a kind's being paused has changed.
    Switched(bool),
    Deleted(Deleted),
    Counted(Vec<(JobStatus, u64)>),
    Cancellations(Vec<RunId>),
}

#[derive(Debug, Default)]
pub(crate) struct FoundJobs {
    /// Highest number first.
    pub(crate) jobs: Vec<JobInfo>,
    /// Jobs among them whose rows make no sense.
    pub(crate) unreadable: Vec<i64>,
    /// The lowest number of all that fit, readable or not.
    pub(crate) lowest: Option<i64>,
    /// Below this number nothing was looked at; `None`: there is nothing.
    pub(crate) floor: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct FoundJournal {
    pub(crate) entries: Vec<JournalEntry>,
    /// Rows that came, readable or not.
    pub(crate) rows: usize,
    /// The last entry, unless that is the job's end.
    pub(crate) last: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelAnswer {
    Cancelled,
    Requested,
    Finished,
    NotThere,
    Busy,
    NotTouched,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequeueAnswer {
    /// With its kind, for those who wait for one.
    Requeued(String),
    NotFinished,
    NotThere,
    Conflict(i64),
    Busy,
    NotTouched,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Deleted {
    pub(crate) jobs: u64,
    /// How far this batch came, in seconds since 1970.
    pub(crate) reached: Option<f64>,
}

impl Finding {
    /// Whether somebody held a row at that moment, so that the same question may have another answer soon.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Cancelled(answers) => answers.iter().any(|(_, answer)| *answer == CancelAnswer::Busy),
            Self::Requeued(answers) => answers.iter().any(|(_, answer)| *answer == RequeueAnswer::Busy),
            _ => false,
        }
    }
}

pub(super) fn read(inquiry: &Inquiry, results: &[Vec<Row>]) -> Result<Finding, ReadError> {
    // What comes before the last command is only preparation.
    let rows = results.last().map(Vec::as_slice).unwrap_or_default();
    Ok(match inquiry {
        Inquiry::Job(_) => Finding::Job(rows.first().map(job).transpose()?.map(Box::new)),
        Inquiry::Find(_) => Finding::Jobs(jobs(rows)?),
        Inquiry::Journal { .. } => Finding::Journal(journal(rows)),
        Inquiry::Stats => Finding::Stats(stats(rows)?),
        Inquiry::Workers => Finding::Workers(each(rows, worker)?),
        Inquiry::Diagnose => Finding::Facts(Box::new(facts(only(rows)?)?)),
        Inquiry::Inventory => Finding::Inventory(each(rows, piece)?),
        Inquiry::BackendAge => Finding::BackendAge(backend_age(rows)?),
        Inquiry::Announce { .. } => Finding::Announced,
        Inquiry::PausedKinds => Finding::PausedKinds(each(rows, paused_kind)?),
        Inquiry::Cancel(_) => Finding::Cancelled(each(rows, cancelled)?),
        Inquiry::Requeue(_) => Finding::Requeued(each(rows, requeued)?),
        Inquiry::PauseKind(_) | Inquiry::ResumeKind(_) => Finding::Switched(get(only(rows)?, "changed")?),
        Inquiry::Cleanup(_) => Finding::Deleted(deleted(only(rows)?)?),
        Inquiry::CleanupCount(_) => Finding::Counted(each(rows, counted)?),
        Inquiry::Cancellations { .. } => Finding::Cancellations(each(rows, run_id)?),
    })
}

fn job(row: &Row) -> Result<JobInfo, ReadError> {
    let status: &str = get(row, "status")?;
    let outcome: Option<&str> = get(row, "outcome")?;
    Ok(JobInfo {
        id: JobId(get(row, "id")?),
        kind: get(row, "kind")?,
        priority: priority(get::<i16>(row, "priority")?.into())?,
        status: JobStatus::from_word(status).ok_or_else(|| ReadError::new(format!("status is {status}")))?,
        created_at: get(row, "created_at")?,
        due_at: get(row, "visible_at")?,
        lease_expires_at: get(row, "claim_expires_at")?,
        cancel_requested_at: get(row, "cancel_requested_at")?,
        finished_at: get(row, "finished_at")?,
        claimed_by: get(row, "claimed_by")?,
        run_count: unsigned(row, "run_count")?,
        failure_count: unsigned(row, "failure_count")?,
        dedup_key: get(row, "dedup_key")?,
        outcome: outcome.and_then(JournalEvent::from_word),
        note: get(row, "note")?,
        trace: get(row, "trace")?,
        payload: json(row, "payload")?,
        carry: json(row, "carry")?,
        attachment: json(row, "attachment")?,
    })
}

fn jobs(rows: &[Row]) -> Result<FoundJobs, ReadError> {
    let mut found = FoundJobs::default();
    for row in rows {
        found.floor = get(row, "floor")?;
        let Some(id) = get::<Option<i64>>(row, "id")? else { continue };
        found.lowest = Some(id);
        match job(row) {
            Ok(job) => found.jobs.push(job),
            Err(error) => {
                notice(Level::Warn, format_args!("job {id} cannot be read: {error}"));
                found.unreadable.push(id);
            }
        }
    }
    Ok(found)
}

fn journal(rows: &[Row]) -> FoundJournal {
    let mut found = FoundJournal { entries: Vec::with_capacity(rows.len()), rows: rows.len(), last: None };
    for row in rows {
        found.last = get(row, "entry").ok().flatten();
        match journal_entry(row) {
            Ok(entry) => found.entries.push(entry),
            Err(error) => notice(Level::Warn, format_args!("a journal entry cannot be read: {error}")),
        }
    }
    found
}

fn stats(rows: &[Row]) -> Result<Stats, ReadError> {
    let first = rows.first().ok_or_else(|| ReadError::new("no instant"))?;
    let mut stats = Stats { at: get(first, "at")?, kinds: BTreeMap::new() };
    for row in rows {
        let kind = KindStats {
            ready: count(row, "ready")?,
            scheduled: count(row, "scheduled")?,
            claimed: count(row, "claimed")?,
            dead: count(row, "dead")?,
            finished_last_minute: count(row, "finished")?,
            oldest_ready: get::<Option<f64>>(row, "waits")?.map(time::seconds),
            paused: get(row, "paused")?,
        };
        // Cancelled jobs alone are nothing to tell of; nor is the row that brings the instant.
        if kind != KindStats::default() {
            stats.kinds.insert(get(row, "kind")?, kind);
        }
    }
    Ok(stats)
}

fn paused_kind(row: &Row) -> Result<PausedKind, ReadError> {
    Ok(PausedKind { kind: get(row, "kind")?, since: get(row, "paused_at")? })
}

fn worker(row: &Row) -> Result<WorkerClaims, ReadError> {
    let lease_left: f64 = get(row, "lease_left")?;
    Ok(WorkerClaims {
        worker: get(row, "worker")?,
        claims: count(row, "claims")?,
        expired: count(row, "expired")?,
        lease_left: (lease_left >= 0.0).then(|| time::seconds(lease_left)),
        kinds: get(row, "kinds")?,
    })
}

fn facts(row: &Row) -> Result<Facts, ReadError> {
    let aged = |seconds, who| -> Result<Option<(f64, String)>, ReadError> {
        Ok(get::<Option<f64>>(row, seconds)?.zip(get::<Option<String>>(row, who)?))
    };
    Ok(Facts {
        at: get(row, "at")?,
        version: get::<Option<i32>>(row, "version")?.unwrap_or_default(),
        transaction: aged("transaction_seconds", "transaction_who")?,
        hidden: count(row, "hidden")?,
        slots: get(row, "slots")?,
        standbys: get(row, "standbys")?,
        prepared: aged("prepared_seconds", "prepared_who")?,
        live_rows: count(row, "live_rows")?,
        dead_rows: count(row, "dead_rows")?,
        bytes: count(row, "bytes")?,
        index_bytes: count(row, "index_bytes")?,
        autovacuum: get(row, "autovacuum")?,
        naptime: count(row, "naptime")?,
        autovacuum_live: get(row, "autovacuum_live")?,
        options: get(row, "options")?,
        expired: count(row, "expired")?,
        unserved: get(row, "unserved")?,
        paused: get(row, "paused")?,
        numbers: numbers(row, ["sequence_readable", "sequence_last", "highest"])?,
        entries: numbers(row, ["journal_readable", "journal_last", "journal_highest"])?,
        commits: get(row, "commits")?,
        fsync: get(row, "fsync")?,
        connections: connections(row)?,
    })
}

fn numbers(row: &Row, [readable, last, highest]: [&str; 3]) -> Result<Option<Numbers>, ReadError> {
    let (readable, last, highest): (bool, Option<i64>, Option<i64>) =
        (get(row, readable)?, get(row, last)?, get(row, highest)?);
    Ok(highest.filter(|_| readable).map(|highest| Numbers { last, highest }))
}

fn piece(row: &Row) -> Result<Piece, ReadError> {
    let word: &str = get(row, "class")?;
    let class = Class::from_word(word).ok_or_else(|| ReadError::new(format!("class is {word}")))?;
    Ok(Piece { class, owner: get(row, "owner")?, name: get(row, "name")?, shape: get(row, "shape")? })
}

fn connections(row: &Row) -> Result<Vec<Taken>, ReadError> {
    let mut all = Vec::new();
    for (whose, taken, room) in [
        ("the server", "connections", "room"),
        ("this role", "role_connections", "role_room"),
        ("this database", "database_connections", "database_room"),
    ] {
        let room: Option<i64> = get(row, room)?;
        if let Some(room) = room.and_then(|room| u64::try_from(room).ok()) {
            all.push(Taken { whose, taken: count(row, taken)?, room });
        }
    }
    Ok(all)
}

fn backend_age(rows: &[Row]) -> Result<f64, ReadError> {
    get(only(rows)?, "age")
}

fn cancelled(row: &Row) -> Result<(i64, CancelAnswer), ReadError> {
    let answer = match get::<i16>(row, "answer")? {
        0 => CancelAnswer::Cancelled,
        1 => CancelAnswer::Requested,
        2 => CancelAnswer::Finished,
        3 => CancelAnswer::NotThere,
        4 => CancelAnswer::Busy,
        5 => CancelAnswer::NotTouched,
        other => return Err(ReadError::new(format!("answer {other} of cancelling"))),
    };
    Ok((get(row, "job")?, answer))
}

fn requeued(row: &Row) -> Result<(i64, RequeueAnswer), ReadError> {
    let answer = match get::<i16>(row, "answer")? {
        0 => RequeueAnswer::Requeued(get(row, "kind")?),
        1 => RequeueAnswer::NotFinished,
        2 => RequeueAnswer::NotThere,
        3 => RequeueAnswer::Conflict(get(row, "other")?),
        4 => RequeueAnswer::Busy,
        5 => RequeueAnswer::NotTouched,
        other => return Err(ReadError::new(format!("answer {other} of requeueing"))),
    };
    Ok((get(row, "job")?, answer))
}

fn counted(row: &Row) -> Result<(JobStatus, u64), ReadError> {
    Ok((status(get(row, "status")?)?, count(row, "jobs")?))
}

fn deleted(row: &Row) -> Result<Deleted, ReadError> {
    Ok(Deleted { jobs: count(row, "deleted")?, reached: get(row, "reached")? })
}
