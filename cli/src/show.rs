//! What is read, as tables and as JSON.

use std::time::{Duration, SystemTime};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde_json::{Value, json, value::RawValue};
use venturi::{
    Finding, JobInfo, JournalEntry, KindStats, MigrationStep, PendingMigrations, Severity, Stats, WorkerClaims,
};

use crate::out::{self, painted};

/// Text of others without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|letter| if is_unsafe(letter) { letter.escape_unicode().collect() } else { vec![letter] })
        .collect()
}

/// Controls (C0, C1), and marks that turn the direction of what follows.
fn is_unsafe(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Words that say at once how something is, wherever they stand as a whole cell.
fn colour(cell: &str) -> Option<Color> {
    match cell {
        "completed" => Some(Color::Green),
        "claimed" => Some(Color::Cyan),
        "dead" | "expired" => Some(Color::Red),
        "cancelled" => Some(Color::Yellow),
        _ if cell.ends_with(" (paused)") => Some(Color::Yellow),
        _ => None,
    }
}

/// Always with colour, which is left out on its way where it is not wanted.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    if let Some(width) = out::width() {
        table.set_width(width);
    }
    table.set_header(head.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    let cell = |text: &String| {
        let cell = Cell::new(plain(text));
        colour(text).map_or_else(|| cell.clone(), |colour| cell.clone().fg(colour))
    };
    table.add_rows(rows.into_iter().map(|row| row.iter().map(cell).collect::<Vec<_>>()));
    table.trim_fmt()
}

pub(crate) fn pending(pending: &PendingMigrations) -> String {
    if pending.steps.is_empty() {
        return format!("{}, and nothing would be applied", whole(pending));
    }
    format!("{}; these would be applied:{}", at_version(pending.version), steps(&pending.steps))
}

pub(crate) fn migrated(before: &PendingMigrations, version: i32) -> String {
    if before.steps.is_empty() {
        return format!("{}: nothing to do", whole(before));
    }
    let made = if before.version == 0 { "the tables are made" } else { "the schema is brought up to date" };
    format!("{made}; it was applied:{}\nthe schema has version {version}", steps(&before.steps))
}

/// Of a schema that lacks nothing. One that this code cannot work with is refused before.
fn whole(it: &PendingMigrations) -> String {
    let version = at_version(it.version);
    if it.version > it.newest_known {
        return format!("{version}, which is newer than this version of venturi and works with it");
    }
    format!("{version}, as this version of venturi needs it")
}

fn at_version(version: i32) -> String {
    if version == 0 { "there are no tables yet".to_owned() } else { format!("the schema has version {version}") }
}

fn steps(steps: &[MigrationStep]) -> String {
    steps.iter().map(|step| format!("\n  {:04} {}", step.version, step.name)).collect()
}

pub(crate) fn steps_json(steps: &[MigrationStep]) -> Value {
    Value::from_iter(steps.iter().map(|step| json!({ "version": step.version, "name": step.name })))
}

pub(crate) fn age(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| humantime::format_duration(Duration::from_secs(time.as_secs())).to_string())
}

fn instant(at: SystemTime) -> String {
    // Its Display fails for years that it cannot write, and a hand-written row may hold any.
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since.as_secs() < 253_402_300_800 => humantime::format_rfc3339_seconds(at).to_string(),
        _ => "out of range".to_owned(),
    }
}

pub(crate) fn stats(stats: &Stats) -> String {
    let row = |kind: &str, it: &KindStats| {
        let counts = [it.ready, it.scheduled, it.claimed, it.dead, it.finished_last_minute];
        let mut row = vec![if it.paused { format!("{kind} (paused)") } else { kind.to_owned() }];
        row.extend(counts.map(|count| count.to_string()));
        row.push(age(it.oldest_ready));
        row
    };
    let head = ["KIND", "READY", "SCHEDULED", "CLAIMED", "DEAD", "PER MINUTE", "OLDEST READY"];
    table(&head, stats.kinds.iter().map(|(kind, it)| row(kind, it)))
}

/// A showing of `status --watch`.
pub(crate) fn watched(it: &Stats, interval: Duration) -> String {
    let at = instant(it.at);
    format!("{at}, every {}\n\n{}", humantime::format_duration(interval), stats(it))
}

pub(crate) fn stats_json(stats: &Stats) -> Value {
    let kinds: Vec<Value> = stats
        .kinds
        .iter()
        .map(|(kind, it)| {
            json!({
                "kind": kind, "ready": it.ready, "scheduled": it.scheduled, "claimed": it.claimed, "dead": it.dead,
                "finished_last_minute": it.finished_last_minute,
                "oldest_ready_seconds": it.oldest_ready.map(|age| age.as_secs_f64()), "paused": it.paused,
            })
        })
        .collect();
    json!({ "at": instant(stats.at), "kinds": kinds })
}

pub(crate) fn jobs(jobs: &[JobInfo]) -> String {
    let row = |job: &JobInfo| {
        let (runs, failures) = (job.run_count.to_string(), job.failure_count.to_string());
        let note = job.note.clone().unwrap_or_default().chars().take(80).collect();
        vec![
            job.id.to_string(),
            job.kind.clone(),
            job.status.to_string(),
            instant(job.created_at),
            runs,
            failures,
            note,
        ]
    };
    table(&["ID", "KIND", "STATUS", "CREATED", "RUNS", "FAILURES", "NOTE"], jobs.iter().map(row))
}

pub(crate) fn job_json(job: &JobInfo) -> Value {
    json!({
        "id": job.id.get(), "kind": job.kind, "status": job.status.as_str(),
        "priority": job.priority.as_str(),
        "created_at": instant(job.created_at), "due_at": instant(job.due_at),
        "lease_expires_at": job.lease_expires_at.map(instant),
        "cancel_requested_at": job.cancel_requested_at.map(instant),
        "finished_at": job.finished_at.map(instant), "claimed_by": job.claimed_by,
        "run_count": job.run_count, "failure_count": job.failure_count, "dedup_key": job.dedup_key, "note": job.note,
        "trace": job.trace,
        "payload": parsed(job.payload_json()), "carry": parsed(job.carry_json()),
        "attachment": parsed(job.attachment_json()),
    })
}

/// As a value where it fits one, else as the text that it is.
fn parsed(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())))
}

pub(crate) fn job(job: &JobInfo, journal: &[JournalEntry]) -> String {
    let optional = |at: Option<SystemTime>| at.map_or("-".to_owned(), instant);
    let facts = [
        ("id", job.id.to_string()),
        ("kind", job.kind.clone()),
        ("status", job.status.to_string()),
        ("created", instant(job.created_at)),
        ("due", instant(job.due_at)),
        ("finished", optional(job.finished_at)),
        ("lease until", optional(job.lease_expires_at)),
        ("worker", job.claimed_by.clone().unwrap_or_else(|| "-".to_owned())),
        ("runs", job.run_count.to_string()),
        ("failures", job.failure_count.to_string()),
        ("dedup key", job.dedup_key.clone().unwrap_or_else(|| "-".to_owned())),
        ("note", job.note.clone().unwrap_or_else(|| "-".to_owned())),
        ("trace", job.trace.clone().unwrap_or_else(|| "-".to_owned())),
        ("payload", job.payload_json().unwrap_or("-").to_owned()),
        ("carry", job.carry_json().unwrap_or("-").to_owned()),
    ];
    let head = facts.map(|(name, value)| format!("{name:<12} {}", plain(&value))).join("\n");
    let row = |entry: &JournalEntry| {
        let note = entry.note.clone().unwrap_or_default();
        vec![entry.run_count.to_string(), instant(entry.at), entry.event.to_string(), note]
    };
    format!("{head}\n\n{}", table(&["RUN", "AT", "EVENT", "NOTE"], journal.iter().map(row)))
}

pub(crate) fn entry_json(entry: &JournalEntry) -> Value {
    json!({
        "run": entry.run_count, "at": instant(entry.at), "event": entry.event.as_str(),
        "claimed_by": entry.claimed_by, "note": entry.note,
        "attachment": entry.attachment::<Box<RawValue>>().ok().flatten().map(|text| parsed(Some(text.get()))),
    })
}

pub(crate) fn workers(workers: &[WorkerClaims]) -> String {
    let row = |it: &WorkerClaims| {
        let left = it.lease_left.map_or("expired".to_owned(), |left| age(Some(left)));
        vec![it.worker.clone(), it.claims.to_string(), it.expired.to_string(), left, it.kinds.join(", ")]
    };
    table(&["WORKER", "CLAIMS", "EXPIRED", "LEASE LEFT", "KINDS"], workers.iter().map(row))
}

pub(crate) fn worker_json(it: &WorkerClaims) -> Value {
    json!({
        "worker": it.worker, "claims": it.claims, "expired": it.expired,
        "lease_left_seconds": it.lease_left.map(|left| left.as_secs_f64()), "kinds": it.kinds,
    })
}

pub(crate) fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return painted(out::GOOD, "nothing is wrong");
    }
    let line = |it: &Finding| {
        let style = match it.severity {
            Severity::Error => out::BAD,
            Severity::Warning => out::ODD,
            _ => out::DULL,
        };
        format!("{} {}: {}\n  {}", painted(style, it.severity.as_str()), it.code, plain(&it.evidence), it.remedy)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn finding_json(it: &Finding) -> Value {
    json!({ "severity": it.severity.as_str(), "code": it.code, "evidence": it.evidence, "remedy": it.remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        assert_eq!(plain("a\u{1b}[31mb\u{9b}\u{202e}ö"), "a\\u{1b}[31mb\\u{9b}\\u{202e}ö");
    }
}
