//! One round of an enqueue with a dedup key: what is asked, and what is answered.
#![deny(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::Json as AsJson;

use crate::job::Json;
use crate::{Effect, Priority};

use super::Param;
use super::param::Stamp;
use super::reply::{ReadError, Reply, each, get, json, payload, priority};
use super::request::{NewJob, column, seconds};

#[derive(Clone, Debug)]
pub(crate) struct EnqueueKeyed {
    pub(crate) rows: Vec<Arc<KeyedJob>>,
    /// For other transactions that have a key.
    pub(crate) wait: bool,
    /// Wakes workers when the transaction commits.
    pub(crate) notify: bool,
}

/// A job with a dedup key, and what is to be done where there is one already.
#[derive(Clone, Debug)]
pub(crate) struct KeyedJob {
    /// What is written, if anything is.
    pub(crate) job: Arc<NewJob>,
    pub(crate) stance: Option<Stance>,
    /// Candidates that are left alone.
    pub(crate) skip: Vec<i64>,
}

impl KeyedJob {
    /// Bytes that it holds, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.job.size() + 400
    }
}

/// A decision, and about which version of the candidate it was made.
#[derive(Clone, Debug)]
pub(crate) struct Stance {
    pub(crate) decision: Decision,
    pub(crate) expected: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Decision {
    Keep,
    Replace,
    /// Without a carry the stored one stays.
    With(Option<Json>),
    Independent,
}

impl Decision {
    fn word(&self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::With(_) => "with",
            Self::Independent => "independent",
        }
    }

    fn carry(&self) -> Option<&RawValue> {
        if let Self::With(carry) = self { carry.as_deref() } else { None }
    }
}

impl EnqueueKeyed {
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let rows: Vec<&KeyedJob> = self.rows.iter().map(|row| &**row).collect();
        vec![
            column(&rows, |row| &*row.job.kind),
            column(&rows, |row| row.job.priority.code()),
            column(&rows, |row| AsJson(&*row.job.payload)),
            column(&rows, |row| seconds(row.job.delay)),
            column(&rows, |row| row.job.due_at.map(Stamp::from)),
            column(&rows, |row| row.job.dedup_key.as_deref()),
            column(&rows, |row| row.stance.as_ref().map(|stance| stance.decision.word())),
            column(&rows, |row| row.stance.as_ref().map(|stance| &*stance.expected)),
            column(&rows, |row| row.stance.as_ref().and_then(|stance| stance.decision.carry()).map(AsJson)),
            column(&rows, |row| array_text(&row.skip)),
            Box::new(self.wait),
            Box::new(self.notify),
            column(&rows, |row| row.job.trace.as_deref()),
        ]
    }
}

/// An array of arrays would need them to be of one length.
fn array_text(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

#[derive(Debug)]
pub(crate) enum KeyedAnswer {
    Stored {
        id: i64,
        effect: Effect,
        /// Seconds from now.
        due_in: f64,
        /// Whether waiting workers should hear of it.
        wakes: bool,
    },
    /// There is another candidate than was expected, or none any more.
    Changed(Option<Candidate>),
    /// Another transaction has the key or the candidate.
    Busy,
}

/// The pending job that a new one may be merged into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: i64,
    pub(crate) version: String,
    /// Or why the row makes no sense.
    pub(crate) found: Result<Found, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) payload: String,
    pub(crate) carry: Option<String>,
    pub(crate) priority: Priority,
    pub(crate) created_at: SystemTime,
    pub(crate) visible_at: SystemTime,
    pub(crate) run_count: i32,
    pub(crate) failure_count: i32,
}

pub(super) fn answers(asked: usize, rows: &[Row]) -> Result<Reply, ReadError> {
    if rows.len() != asked {
        return Err(ReadError::new(format!("{} answers for {asked} jobs with keys", rows.len())));
    }
    Ok(Reply::Keyed(each(rows, answer)?))
}

fn answer(row: &Row) -> Result<KeyedAnswer, ReadError> {
    let effect = match get::<String>(row, "answer")?.as_str() {
        "inserted" => Effect::Inserted,
        "kept" => Effect::Kept,
        "replaced" => Effect::Replaced,
        "merged" => Effect::Merged,
        "busy" => return Ok(KeyedAnswer::Busy),
        "changed" => return Ok(KeyedAnswer::Changed(candidate(row)?)),
        other => return Err(ReadError::new(format!("answer {other:?} to an enqueue"))),
    };
    Ok(KeyedAnswer::Stored { id: get(row, "id")?, effect, due_in: get(row, "due_in")?, wakes: get(row, "wakes")? })
}

fn candidate(row: &Row) -> Result<Option<Candidate>, ReadError> {
    let Some(id) = get(row, "id")? else { return Ok(None) };
    let found = found(row).map_err(|error| error.to_string());
    Ok(Some(Candidate { id, version: get(row, "version")?, found }))
}

fn found(row: &Row) -> Result<Found, ReadError> {
    Ok(Found {
        payload: payload(row, "found_payload")?.get().to_owned(),
        carry: json(row, "found_carry")?.map(|carry| carry.get().to_owned()),
        priority: priority(get(row, "found_priority")?)?,
        created_at: get(row, "found_created_at")?,
        visible_at: get(row, "found_visible_at")?,
        run_count: get(row, "found_run_count")?,
        failure_count: get(row, "found_failure_count")?,
    })
}
