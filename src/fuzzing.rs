//! What anybody may send, tried: each function fails if it does more than it may.
//!
//! For the property tests beside the code and for the targets in `fuzz/`; no other build has this module.
#![deny(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::SystemTime;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::config::worker_name;
use crate::database::SchemaName;
use crate::filter::JobFilter;
use crate::limits::{MAX_DELAY, MAX_KEY, MAX_KIND};
use crate::notification::{self, Cancelled, Kinds};
use crate::reading::{Unreadable, read};
use crate::statement::{
    Bounds, Claim, CleanupBatch, Enqueue, EnqueueKeyed, Find, Held, History, Inquiry, KeyedJob, NewJob, NewJobs,
    Promote, Recover, Renew, Reply, Settle, Stale, Statement, Survey, Touch, render, typed,
};
use crate::task::check_kind;
use crate::{Cursor, Database, DedupKey, ErrorKind, JobStatus, Priority, Task};

/// Any program can notify on the channel.
pub fn notification(text: &str) {
    let read = notification::parse(text);
    assert!(read.due_in <= MAX_DELAY);
    let kinds = match &read.kinds {
        Kinds::All => Vec::new(),
        Kinds::Some(kinds) => kinds.iter().map(String::as_str).collect(),
    };
    let cancelled = match &read.cancelled {
        Cancelled::Any => return,
        Cancelled::These(ids) => ids.clone(),
    };
    let again = notification::encode_all(&kinds, read.due_in, &cancelled);
    assert!(again.len() < 8_000, "PostgreSQL takes no more");
    // Of a longer one kinds or jobs may be too many to name.
    if text.len() < 2_000 {
        assert_eq!(notification::parse(&again), read, "{again:?}");
    }
}

/// A connection string of any text around a secret: what is said of it never tells the secret.
pub fn connection_string(before: &str, after: &str) {
    const SECRET: &str = "hunter2";
    let text = format!("{before}{SECRET}{after}");
    let said = match Database::new(&text) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Config);
            format!("{error} {error:?}")
        }
        Ok(database) => {
            let holds = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            // Elsewhere it is no secret: the name of a host, say.
            let secret = database.config().get_password().is_some_and(holds);
            if secret { format!("{database:?}") } else { String::new() }
        }
    };
    let elsewhere = before.contains(SECRET) || after.contains(SECRET);
    assert!(elsewhere || !said.contains(SECRET), "{text:?}: {said}");
}

/// A schema's name is refused, or is one identifier in SQL and comes back from it as it was.
pub fn schema_name(name: &str) {
    match SchemaName::new(name) {
        Err(refusal) => assert_eq!(refusal.kind(), ErrorKind::Config),
        Ok(schema) => {
            let quoted = schema.quoted();
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let unquoted = inner.map(|inner| inner.replace("\"\"", "\u{1}"));
            assert!(unquoted.as_ref().is_some_and(|text| !text.contains('"')), "{quoted} is one identifier");
            assert_eq!(unquoted.map(|text| text.replace('\u{1}', "\"")).as_deref(), Some(name));
            assert_eq!(
                render("SELECT {schema}.x FROM {schema}.y", &schema),
                format!("SELECT {quoted}.x FROM {quoted}.y")
            );
        }
    }
}

/// What else has a name: it is refused, or it is short and without control characters.
pub fn names(text: &str) {
    let is_sound = |most: usize| !text.is_empty() && text.len() <= most && !text.contains(char::is_control);
    assert_eq!(check_kind(text).is_ok(), is_sound(MAX_KIND));
    assert_eq!(DedupKey::from(text).checked("a").is_ok_and(|key| key == text), is_sound(MAX_KEY));
    let worker = worker_name(None, text, u32::MAX, u64::MAX);
    assert!(worker.len() < 300 && !worker.contains(char::is_control), "{worker:?}");
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse::<Cursor>().ok(), Some(cursor));
    }
}

/// A task that takes any JSON, and a carry of many types.
#[derive(Debug, Serialize, Deserialize)]
struct Anything(Value);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Mixed {
    text: String,
    byte: u8,
    signed: i64,
    real: f64,
    letter: char,
    maybe: Option<Box<Self>>,
    many: Vec<Self>,
}

impl Task for Anything {
    const KIND: &'static str = "anything";
    type Carry = Mixed;
}

/// A payload and a carry of any text decode, or do not; neither panics. What decodes can be written again.
pub fn json(payload: &str, carry: Option<&str>) {
    match read::<Anything>(payload, carry) {
        Ok((task, carry)) => {
            for text in [serde_json::to_string(&task), serde_json::to_string(&carry)] {
                assert!(text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(&text).is_ok()));
            }
        }
        Err(Unreadable::Undecodable(why)) => assert!(why.starts_with("cannot decode the "), "{why}"),
        Err(Unreadable::Panicked(panic)) => assert!(panic.is_empty(), "{panic}"),
    }
    let raw = RawValue::from_string(payload.to_owned());
    assert_eq!(raw.is_ok(), serde_json::from_str::<IgnoredAny>(payload).is_ok());
}

/// The names that statements' rows have, with the types that they have.
pub const COLUMNS: &[(&str, Type)] = &[
    ("id", Type::INT8),
    ("job", Type::INT8),
    ("run", Type::INT4),
    ("run_count", Type::INT4),
    ("run_no", Type::INT4),
    ("entry", Type::INT8),
    ("kind", Type::TEXT),
    ("answer", Type::INT2),
    ("event", Type::INT2),
    ("looked", Type::INT8),
    ("looked_for", Type::FLOAT8),
    ("stale", Type::BOOL),
    ("priority", Type::INT2),
    ("created_at", Type::TIMESTAMPTZ),
    ("visible_at", Type::TIMESTAMPTZ),
    ("claim_expires_at", Type::TIMESTAMPTZ),
    ("cancel_requested_at", Type::TIMESTAMPTZ),
    ("finished_at", Type::TIMESTAMPTZ),
    ("paused_at", Type::TIMESTAMPTZ),
    ("at", Type::TIMESTAMPTZ),
    ("claimed_at", Type::TIMESTAMPTZ),
    ("failure_count", Type::INT4),
    ("payload", Type::JSON),
    ("carry", Type::JSON),
    ("attachment", Type::JSON),
    ("claimed_by", Type::TEXT),
    ("note", Type::TEXT),
    ("status", Type::TEXT),
    ("outcome", Type::TEXT),
    ("dedup_key", Type::TEXT),
    ("floor", Type::INT8),
    ("dead", Type::BOOL),
    ("delay", Type::FLOAT8),
    ("promoted", Type::INT8),
    ("more_due", Type::BOOL),
    ("next_due", Type::FLOAT8),
    ("next_expiry", Type::FLOAT8),
    ("ready", Type::BOOL),
    ("due", Type::BOOL),
    ("due_in", Type::FLOAT8),
    ("ids", Type::INT8_ARRAY),
    ("cancel_requested", Type::BOOL),
    ("completed", Type::BOOL),
    ("version", Type::INT4),
    ("compatible_from", Type::INT4),
    ("changed", Type::BOOL),
    ("deleted", Type::INT8),
    ("reached", Type::FLOAT8),
    ("other", Type::INT8),
    ("scheduled", Type::INT8),
    ("claimed", Type::INT8),
    ("finished", Type::INT8),
    ("waits", Type::FLOAT8),
    ("paused", Type::BOOL),
    ("worker", Type::TEXT),
    ("claims", Type::INT8),
    ("expired", Type::INT8),
    ("lease_left", Type::FLOAT8),
    ("kinds", Type::TEXT_ARRAY),
    ("wakes", Type::BOOL),
    ("jobs", Type::INT8),
    ("transaction_seconds", Type::FLOAT8),
    ("transaction_who", Type::TEXT),
    ("prepared_seconds", Type::FLOAT8),
    ("prepared_who", Type::TEXT),
    ("hidden", Type::INT8),
    ("slots", Type::TEXT),
    ("live_rows", Type::INT8),
    ("dead_rows", Type::INT8),
    ("bytes", Type::INT8),
    ("autovacuum", Type::BOOL),
    ("autovacuum_live", Type::BOOL),
    ("missing", Type::TEXT_ARRAY),
    ("invalid", Type::TEXT_ARRAY),
    ("unserved", Type::TEXT_ARRAY),
    ("commits", Type::TEXT),
    ("connections", Type::INT8),
    ("room", Type::INT8),
    ("fsync", Type::BOOL),
    ("index_bytes", Type::INT8),
    ("naptime", Type::INT8),
    ("sequence_readable", Type::BOOL),
    ("sequence_last", Type::INT8),
    ("highest", Type::INT8),
    ("options", Type::TEXT_ARRAY),
    ("standbys", Type::TEXT),
    ("trace", Type::TEXT),
    ("runs", Type::INT4_ARRAY),
    ("found_payload", Type::JSON),
    ("found_carry", Type::JSON),
    ("found_priority", Type::INT4),
    ("found_created_at", Type::TIMESTAMPTZ),
    ("found_visible_at", Type::TIMESTAMPTZ),
    ("found_run_count", Type::INT4),
    ("found_failure_count", Type::INT4),
];

/// The types of other columns, instead of those that they should have.
pub const TYPES: &[Type] = &[
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::FLOAT8,
    Type::BOOL,
    Type::TEXT,
    Type::JSON,
    Type::TIMESTAMPTZ,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA,
];

/// Rows with any content, as the answer to each statement that has an answer: it is read or refused, and of a claim each
/// row that names its run is accounted for. `results` are two lists of rows of [`COLUMNS`].
pub fn rows(results: &[Vec<Row>; 2]) {
    let [one, _] = results;
    for statement in questions(one.len()) {
        let both = matches!(&statement, Statement::Exchange { settle: Some(settle), claim: Some(_) } if !settle.brief);
        let results = if both { results.as_slice() } else { std::slice::from_ref(one) };
        let Ok(reply) = statement.read(results) else { continue };
        if let Reply::Exchange { claim: Some(claim), .. } = &reply {
            let asked = results.last().map_or(0, Vec::len);
            assert!(claim.jobs.len() + claim.malformed.len() <= asked);
            assert!(claim.jobs.is_sorted_by_key(|job| (job.priority, job.created_at, job.id)));
            for job in &claim.jobs {
                json(job.payload.get(), job.carry.as_deref().map(RawValue::get));
                writable(job.id.job, job.created_at);
            }
        }
    }
}

/// What was read of a row can be where the next claim begins.
fn writable(id: i64, at: SystemTime) {
    let bounds = Bounds { created_at: vec![Some(at)], ids: vec![id] };
    let statement = Statement::Exchange { settle: None, claim: Some(claim(&"host:1:fuzz".into(), Some(bounds))) };
    for command in statement.commands() {
        for (value, ty) in typed(&command.params) {
            assert!(value.to_sql_checked(&ty, &mut Default::default()).is_ok(), "{value:?}");
        }
    }
}

/// Each statement that has an answer, for so many rows.
fn questions(rows: usize) -> Vec<Statement> {
    let worker: Arc<str> = "host:1:fuzz".into();
    let settle = |brief| Some(Settle { worker: Arc::clone(&worker), rows: Vec::new(), discard: false, brief });
    let touch = Touch { ids: Vec::new(), statuses: Vec::new(), patient: false };
    let find = Find {
        filter: Arc::new(JobFilter::new()),
        statuses: Vec::new(),
        below: i64::MAX,
        look: 1,
        most: 1,
        content: true,
    };
    let batch = CleanupBatch { status: JobStatus::Dead, age: 0.0, from: 0.0, most: 1 };
    let mut all = vec![
        Statement::Exchange { settle: None, claim: Some(claim(&worker, None)) },
        Statement::Exchange { settle: settle(false), claim: None },
        Statement::Exchange { settle: settle(true), claim: Some(claim(&worker, None)) },
        Statement::Exchange {
            settle: settle(false),
            claim: Some(claim(&worker, Some(Bounds { created_at: Vec::new(), ids: Vec::new() }))),
        },
        Statement::Stale(Stale { worker: Arc::clone(&worker), look_back: 0.0, most: 1 }),
        Statement::Recover(Recover { rows: Vec::new() }),
        Statement::Promote(Promote { kinds: Vec::new(), look_back: 0.0, most: 1 }),
        Statement::Survey(Survey {
            kinds: Vec::new(),
            worker: Arc::clone(&worker),
            look_back: 0.0,
            horizon: 1.0,
            open: Vec::new(),
            skip: Vec::new(),
        }),
        Statement::Renew(Renew { worker: Arc::clone(&worker), rows: Vec::new() }),
        Statement::Held(Held { worker: Arc::clone(&worker), runs: Vec::new() }),
        Statement::Reserve(1),
        Statement::History(History { job: 1, most: 1 }),
        Statement::Check,
    ];
    all.extend(new_jobs(rows));
    let inquiries = [
        Inquiry::Job(1),
        Inquiry::Find(find),
        Inquiry::Journal { job: 1, after: 0, most: 1 },
        Inquiry::Stats,
        Inquiry::PausedKinds,
        Inquiry::Workers,
        Inquiry::Diagnose,
        Inquiry::Inventory,
        Inquiry::Cancel(touch.clone()),
        Inquiry::Requeue(touch),
        Inquiry::PauseKind("a".to_owned()),
        Inquiry::Cleanup(batch),
        Inquiry::Cancellations { worker, runs: Vec::new() },
    ];
    all.extend(inquiries.map(Statement::Inquiry));
    all
}

fn claim(worker: &Arc<str>, bounds: Option<Bounds>) -> Claim {
    Claim {
        durable: true,
        worker: Arc::clone(worker),
        kinds: Vec::new(),
        leases: Vec::new(),
        room: Vec::new(),
        floor: 0,
        want: 1,
        spare: 0,
        look_back: 0.0,
        skip: Vec::new(),
        bounds,
    }
}

/// Enqueues of so many jobs.
fn new_jobs(rows: usize) -> [Statement; 2] {
    let job = NewJob {
        kind: "a".into(),
        priority: Priority::Normal,
        payload: RawValue::NULL.to_owned(),
        dedup_key: None,
        trace: None,
        delay: 0.0,
        due_at: None,
    };
    let keyed = Arc::new(KeyedJob { job: Arc::new(job.clone()), stance: None, skip: Vec::new() });
    let plain = Enqueue { calls: vec![NewJobs::new(vec![job; rows])], channel: None };
    let keyed = EnqueueKeyed { rows: vec![keyed; rows], wait: false, notify: false };
    [Statement::Enqueue(plain), Statement::EnqueueKeyed(keyed)]
}

#[cfg(test)]
mod tests;
