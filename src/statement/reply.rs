//! What comes back, parsed: each stored invariant is checked again here, and a row that breaks one never fails its
//! neighbours.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::sync::Arc;

use log::Level;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json as AsJson};

use crate::job::{ClaimedJob, Json, RunId};
use crate::journal::{JournalEntry, JournalEvent};
use crate::notice::notice;
use crate::text::chain;
use crate::{JobStatus, Priority};

use super::Settle;
use super::finding::Finding;
use super::keyed::KeyedAnswer;

#[derive(Debug)]
pub(crate) enum Reply {
    Exchange {
        settled: Vec<(RunId, Settled)>,
        claim: Option<ClaimReply>,
    },
    Stale(Vec<StaleRow>),
    /// Whether the claim was still the run's.
    Checkpointed(bool),
    /// Of a completion in the caller's transaction.
    Completed(Settled),
    /// Whether a setting was as expected, and was changed.
    Changed(bool),
    /// Whether anybody was told; else nobody was interested.
    Notified(bool),
    /// Oldest first.
    History(Vec<JournalEntry>),
    Recovered(Vec<Recovered>),
    Promoted {
        promoted: u64,
        more_due: bool,
        /// Seconds from now.
        next_due: Option<f64>,
    },
    Survey(SurveyReply),
    /// With whether the job is to be cancelled.
    Renewed(Vec<(RunId, bool)>),
    /// With whether the run has completed its job by itself, so that nothing is held any more.
    Held(Vec<(RunId, bool)>),
    /// In the order of the request.
    Enqueued(Vec<NewId>),
    /// In the order of the request.
    Keyed(Vec<KeyedAnswer>),
    Reserved(Numbers),
    Version {
        version: i32,
        compatible_from: i32,
    },
    Inquiry(Finding),
    Done,
}

/// The number of a new job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NewId {
    pub(crate) id: i64,
    /// Seconds until it is due; `None`, 0 and less: it is.
    pub(crate) due_in: Option<f64>,
}

/// Numbers for new jobs, and when they were given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) ids: Vec<i64>,
    /// By the server's clock, in microseconds since 1970.
    pub(crate) at: i64,
}

/// What became of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Settled {
    Accepted,
    /// The claim is not ours any more, and the result was never stored.
    Refused,
    /// Still ours, but somebody else holds the row: again later.
    Busy,
    /// An earlier attempt, whose reply was lost, had stored it.
    Landed,
    /// The run had completed its job by itself before, in a transaction of its handler; that stands.
    Completed,
    /// The job has ended as cancelled, by this result or by an earlier attempt of it: somebody had asked for that.
    Cancelled,
}

#[derive(Debug, Default)]
pub(crate) struct ClaimReply {
    /// By priority, age and id.
    pub(crate) jobs: Vec<ClaimedJob>,
    pub(crate) malformed: Vec<Malformed>,
    /// Candidates seen; 0 when nothing was claimed, whatever was seen.
    pub(crate) looked: u64,
    /// A claim of another worker has run out. `false` when nothing was claimed, whatever is the case.
    pub(crate) stale: bool,
    /// How many seconds the server looked before it had the rows. `None` when nothing was claimed.
    pub(crate) looked_for: Option<f64>,
}

/// A claimed row that cannot be handed to a handler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) id: RunId,
    pub(crate) kind: String,
    pub(crate) why: String,
    pub(crate) failure_count: i32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StaleRow {
    pub(crate) id: RunId,
    pub(crate) kind: String,
    /// Without the failure that the lost claim is.
    pub(crate) failure_count: i32,
    pub(crate) claimed_by: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Recovered {
    pub(crate) job: i64,
    pub(crate) kind: String,
    /// What it is now.
    pub(crate) status: JobStatus,
    /// Seconds.
    pub(crate) delay: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SurveyReply {
    pub(crate) ready: bool,
    pub(crate) due: bool,
    pub(crate) stale: bool,
    /// Seconds from now.
    pub(crate) next_due: Option<f64>,
    /// Seconds from now.
    pub(crate) next_expiry: Option<f64>,
}

/// The server's answer is not what the statement asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadError(String);

impl ReadError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected reply: {}", self.0)
    }
}

impl std::error::Error for ReadError {}

pub(super) fn exchange(asked: Option<&Settle>, claims: bool, results: &[Vec<Row>]) -> Result<Reply, ReadError> {
    let (settle, claim) = match (asked.is_some(), claims, results) {
        (true, true, [settle, claim]) => (Some(settle.as_slice()), Some(claim.as_slice())),
        (true, true, [both]) => {
            let (settle, claim) = both.split_at(both.len().min(1));
            (Some(settle), Some(claim))
        }
        (true, false, [settle]) => (Some(settle.as_slice()), None),
        (false, true, [claim] | [_, claim]) => (None, Some(claim.as_slice())),
        (false, false, []) => (None, None),
        _ => return Err(ReadError::new(format!("{} results of an exchange", results.len()))),
    };
    let settled = match settle {
        None => Vec::new(),
        Some(rows) if asked.is_some_and(|settle| settle.brief) => accepted(only(rows)?)?,
        Some(rows) => each(rows, settled)?,
    };
    Ok(Reply::Exchange { settled, claim: claim.map(claimed) })
}

/// Of a brief settlement, which answers for nothing else. In an exchange that is one statement it comes first.
pub(super) fn accepted(row: &Row) -> Result<Vec<(RunId, Settled)>, ReadError> {
    let (ids, runs): (Option<Vec<i64>>, Option<Vec<i32>>) = (get(row, "ids")?, get(row, "runs")?);
    let (ids, runs) = (ids.unwrap_or_default(), runs.unwrap_or_default());
    if ids.len() != runs.len() {
        return Err(ReadError::new(format!("{} jobs and {} runs were accepted", ids.len(), runs.len())));
    }
    Ok(ids.into_iter().zip(runs).map(|(job, run)| (RunId { job, run }, Settled::Accepted)).collect())
}

fn settled(row: &Row) -> Result<(RunId, Settled), ReadError> {
    Ok((RunId { job: get(row, "job")?, run: get(row, "run")? }, answer(row)?))
}

fn answer(row: &Row) -> Result<Settled, ReadError> {
    match get::<i16>(row, "answer")? {
        0 => Ok(Settled::Accepted),
        1 => Ok(Settled::Refused),
        2 => Ok(Settled::Busy),
        3 => Ok(Settled::Landed),
        4 => Ok(Settled::Completed),
        5 => Ok(Settled::Cancelled),
        other => Err(ReadError::new(format!("answer {other} of a settlement"))),
    }
}

pub(super) fn completed(rows: &[Row]) -> Result<Reply, ReadError> {
    Ok(Reply::Completed(answer(only(rows)?)?))
}

fn claimed(rows: &[Row]) -> ClaimReply {
    let mut claimed = Claimed::default();
    rows.iter().for_each(|row| claimed.take(row));
    claimed.end()
}

/// What a claim has brought so far.
#[derive(Default)]
pub(super) struct Claimed {
    reply: ClaimReply,
    any: bool,
}

impl Claimed {
    pub(super) fn take(&mut self, row: &Row) {
        let reply = &mut self.reply;
        if !self.any {
            self.any = true;
            // The same in each row.
            reply.looked_for = get(row, "looked_for").ok();
            reply.looked = count(row, "looked").unwrap_or(0);
            reply.stale = get(row, "stale").unwrap_or(false);
        }
        let id = match run_id(row) {
            Ok(id) => id,
            Err(error) => {
                let why = format_args!("a claimed row is left to recovery, for its number cannot be read: {error}");
                return notice(Level::Warn, why);
            }
        };
        match claimed_job(id, row) {
            Ok(job) => reply.jobs.push(job),
            Err(error) => reply.malformed.push(malformed(id, row, error)),
        }
    }

    pub(super) fn end(mut self) -> ClaimReply {
        self.reply.jobs.sort_by_key(|job| (job.priority, job.created_at, job.id));
        self.reply
    }
}

fn claimed_job(id: RunId, row: &Row) -> Result<ClaimedJob, ReadError> {
    Ok(ClaimedJob {
        id,
        kind: get(row, "kind")?,
        priority: priority(get::<i16>(row, "priority")?.into())?,
        created_at: get(row, "created_at")?,
        visible_at: get(row, "visible_at")?,
        claimed_at: get(row, "claimed_at")?,
        failure_count: get(row, "failure_count")?,
        payload: payload(row, "payload")?,
        carry: json(row, "carry")?,
        trace: get::<Option<&str>>(row, "trace")?.map(Arc::from),
    })
}

fn malformed(id: RunId, row: &Row, error: ReadError) -> Malformed {
    let kind = get(row, "kind").unwrap_or_default();
    Malformed { id, kind, why: error.0, failure_count: get(row, "failure_count").unwrap_or_default() }
}

/// A row that cannot be read is left where it is, and keeps no other from being recovered.
pub(super) fn stale(rows: &[Row]) -> Reply {
    let read = |row: &Row| {
        Ok(StaleRow {
            id: run_id(row)?,
            kind: get(row, "kind")?,
            failure_count: get(row, "failure_count")?,
            claimed_by: get(row, "claimed_by")?,
        })
    };
    let found = rows.iter().map(read).filter_map(|row: Result<StaleRow, ReadError>| match row {
        Ok(row) => Some(row),
        Err(error) => {
            notice(Level::Warn, format_args!("a claim whose lease has run out cannot be read: {error}"));
            None
        }
    });
    Reply::Stale(found.collect())
}

pub(super) fn recovered(rows: &[Row]) -> Result<Reply, ReadError> {
    let read = |row: &Row| {
        Ok(Recovered {
            job: get(row, "id")?,
            kind: get(row, "kind")?,
            status: status(get(row, "status")?)?,
            delay: get(row, "delay")?,
        })
    };
    Ok(Reply::Recovered(each(rows, read)?))
}

pub(super) fn status(code: i16) -> Result<JobStatus, ReadError> {
    JobStatus::from_code(code).ok_or_else(|| ReadError::new(format!("status is {code}")))
}

pub(super) fn promoted(rows: &[Row]) -> Result<Reply, ReadError> {
    let row = only(rows)?;
    Ok(Reply::Promoted {
        promoted: count(row, "promoted")?,
        more_due: get(row, "more_due")?,
        next_due: seconds(row, "next_due")?,
    })
}

pub(super) fn survey(rows: &[Row]) -> Result<Reply, ReadError> {
    let row = only(rows)?;
    Ok(Reply::Survey(SurveyReply {
        ready: get(row, "ready")?,
        due: get(row, "due")?,
        stale: get(row, "stale")?,
        next_due: seconds(row, "next_due")?,
        next_expiry: seconds(row, "next_expiry")?,
    }))
}

pub(super) fn renewed(rows: &[Row]) -> Result<Reply, ReadError> {
    Ok(Reply::Renewed(each(rows, |row| Ok((run_id(row)?, get(row, "cancel_requested")?)))?))
}

pub(super) fn held(rows: &[Row]) -> Result<Reply, ReadError> {
    Ok(Reply::Held(each(rows, |row| Ok((run_id(row)?, get(row, "completed")?)))?))
}

pub(super) fn enqueued(asked: usize, rows: &[Row]) -> Result<Reply, ReadError> {
    if rows.len() != asked {
        return Err(ReadError::new(format!("{} numbers for {asked} new jobs", rows.len())));
    }
    Ok(Reply::Enqueued(each(rows, |row| Ok(NewId { id: get(row, "id")?, due_in: seconds(row, "due_in")? }))?))
}

pub(super) fn reserved(asked: i32, rows: &[Row]) -> Result<Reply, ReadError> {
    let row = only(rows)?;
    let ids: Vec<i64> = get(row, "ids")?;
    if i32::try_from(ids.len()) != Ok(asked) {
        return Err(ReadError::new(format!("{} numbers instead of {asked}", ids.len())));
    }
    Ok(Reply::Reserved(Numbers { ids, at: get(row, "at")? }))
}

/// Newest first from the server, oldest first from here. An entry that cannot be read is left out: a handler can do
/// nothing about it.
pub(super) fn history(rows: &[Row]) -> Result<Reply, ReadError> {
    let read = |row: &Row| match journal_entry(row) {
        Ok(entry) => Some(entry),
        Err(error) => {
            notice(Level::Warn, format_args!("a journal entry cannot be read: {error}"));
            None
        }
    };
    Ok(Reply::History(rows.iter().rev().filter_map(read).collect()))
}

pub(super) fn journal_entry(row: &Row) -> Result<JournalEntry, ReadError> {
    let event: i16 = get(row, "event")?;
    Ok(JournalEntry {
        run_count: unsigned(row, "run_no")?,
        at: get(row, "at")?,
        event: JournalEvent::from_code(event).ok_or_else(|| ReadError::new(format!("event is {event}")))?,
        claimed_by: get(row, "claimed_by")?,
        note: get(row, "note")?,
        attachment: json(row, "attachment")?,
    })
}

pub(super) fn notified(rows: &[Row]) -> Result<Reply, ReadError> {
    Ok(Reply::Notified(get(only(rows)?, "told")?))
}

pub(super) fn version(rows: &[Row]) -> Result<Reply, ReadError> {
    let row = only(rows)?;
    Ok(Reply::Version { version: get(row, "version")?, compatible_from: get(row, "compatible_from")? })
}

pub(super) fn each<T>(rows: &[Row], read: impl Fn(&Row) -> Result<T, ReadError>) -> Result<Vec<T>, ReadError> {
    rows.iter().map(read).collect()
}

pub(super) fn only(rows: &[Row]) -> Result<&Row, ReadError> {
    match rows {
        [row] => Ok(row),
        _ => Err(ReadError::new(format!("{} rows instead of one", rows.len()))),
    }
}

pub(super) fn run_id(row: &Row) -> Result<RunId, ReadError> {
    Ok(RunId { job: get(row, "id")?, run: get(row, "run_count")? })
}

pub(super) fn count(row: &Row, name: &str) -> Result<u64, ReadError> {
    let count: i64 = get(row, name)?;
    u64::try_from(count).map_err(|_| ReadError::new(format!("{name} is {count}")))
}

pub(super) fn unsigned(row: &Row, name: &str) -> Result<u32, ReadError> {
    let value: i32 = get(row, name)?;
    u32::try_from(value).map_err(|_| ReadError::new(format!("{name} is {value}")))
}

pub(super) fn priority(code: i32) -> Result<Priority, ReadError> {
    let priority = i16::try_from(code).ok().and_then(Priority::from_code);
    priority.ok_or_else(|| ReadError::new(format!("the priority {code}")))
}

/// Only a row that a bug or a person has spoilt has none.
pub(super) fn payload(row: &Row, name: &str) -> Result<Json, ReadError> {
    json(row, name)?.ok_or_else(|| ReadError::new("there is no payload"))
}

pub(super) fn json(row: &Row, name: &str) -> Result<Option<Json>, ReadError> {
    Ok(get::<Option<AsJson<Json>>>(row, name)?.map(|json| json.0))
}

/// `infinity` is an instant that never comes, so there is nothing to wait for.
fn seconds(row: &Row, name: &str) -> Result<Option<f64>, ReadError> {
    Ok(get::<Option<f64>>(row, name)?.filter(|seconds| seconds.is_finite()))
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, ReadError> {
    row.try_get(name).map_err(|error| ReadError::new(format!("{name}: {}", chain(&error))))
}
