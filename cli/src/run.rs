//! Each command: a call or two of the library, and its answer in words.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use serde_json::{Value, json};
use venturi::blocking::{self, Queue};
use venturi::{CancelOutcome, Database, JobFilter, JobId, JobStatus, RequeueOutcome, Severity};

use crate::args::{Arguments, Command, Consent, Dead, Jobs, Kinds, Target, Which};
use crate::connect::{database, nowhere};
use crate::failure::{Failure, complain};
use crate::out::{confirm, print, raw, redraw};
use crate::{cleanup, enqueue, show};

/// What `doctor` returns when it has found an error.
const FOUND_ERRORS: u8 = 3;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Command::Completions { .. } | Command::Man | Command::Migrate { sql: true, .. } if arguments.json => {
            return Err(Failure::Usage(
                "what this prints is text for other programs, and no JSON: leave --json out".to_owned(),
            ));
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "venturi", &mut text);
            raw(&text)?;
        }
        Command::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut text)?;
            raw(&text)?;
        }
        Command::Migrate { sql: true, from, .. } => raw(nowhere(&arguments)?.migration_script(*from)?.as_bytes())?,
        Command::Migrate { dry_run: true, .. } => preview(&database(&arguments)?, arguments.json)?,
        Command::Migrate { .. } => migrate(&database(&arguments)?, arguments.json)?,
        _ => return on_queue(&arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// If others migrate at the same time, what they do is told as well.
fn migrate(database: &Database, as_json: bool) -> Result<(), Failure> {
    let before = blocking::pending_migrations(database)?;
    blocking::migrate(database)?;
    let version = before.steps.last().map_or(before.version, |last| last.version);
    let document = || json!({ "version": version, "applied": show::steps_json(&before.steps) });
    print(as_json, document, || show::migrated(&before, version))
}

fn preview(database: &Database, as_json: bool) -> Result<(), Failure> {
    let pending = blocking::pending_migrations(database)?;
    let document = || json!({ "version": pending.version, "steps": show::steps_json(&pending.steps) });
    print(as_json, document, || show::pending(&pending))
}

fn on_queue(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let queue = Queue::connect(&database(arguments)?)?;
    let json = arguments.json;
    match &arguments.command {
        Command::Status { watch: true, interval } => watch(&queue, json, *interval)?,
        Command::Status { .. } => status(&queue, json)?,
        Command::Jobs(jobs) => on_jobs(&queue, jobs, json)?,
        Command::Dead(Dead::List { kind, limit }) => list(&queue, dead(kind), *limit, json)?,
        Command::Dead(Dead::Requeue { kind, consent }) => requeue_all(&queue, dead(kind), consent, json)?,
        Command::Kinds(Kinds::Pause { kind }) => {
            let changed = queue.pause_kind(kind)?;
            let said = if changed { "paused" } else { "it was paused already" };
            print(json, || json!({ "kind": kind, "paused": true, "changed": changed }), || said.to_owned())?;
        }
        Command::Kinds(Kinds::Resume { kind }) => {
            let changed = queue.resume_kind(kind)?;
            let said = if changed { "resumed" } else { "it was not paused" };
            print(json, || json!({ "kind": kind, "paused": false, "changed": changed }), || said.to_owned())?;
        }
        Command::Recover => {
            let done = queue.recover_stale()?;
            let document = || json!({ "pending": done.repended, "dead": done.dead, "cancelled": done.cancelled });
            print(json, document, || {
                format!("{} pending again, {} dead, {} cancelled", done.repended, done.dead, done.cancelled)
            })?;
        }
        Command::Cleanup(ages) => cleanup::cleanup(&queue, ages, json)?,
        Command::Enqueue(job) => enqueue::enqueue(&queue, job, json)?,
        Command::Workers => {
            let workers = queue.workers()?;
            let lines = || Value::from_iter(workers.iter().map(show::worker_json));
            print(json, lines, || show::workers(&workers))?;
        }
        Command::Doctor { .. } => return doctor(&queue, json),
        Command::Migrate { .. } | Command::Completions { .. } | Command::Man => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn on_jobs(queue: &Queue, jobs: &Jobs, json: bool) -> Result<(), Failure> {
    let became = |id: &i64, outcome: &str, said: &str| {
        print(json, || json!({ "id": id, "outcome": outcome }), || said.to_owned())
    };
    match jobs {
        Jobs::List { which, limit } => list(queue, filter(which), *limit, json),
        Jobs::Show { id } => show_job(queue, *id, json),
        Jobs::Cancel { target: Target { id: Some(id), .. } } => match queue.cancel(JobId::from(*id))? {
            CancelOutcome::Cancelled => became(id, "cancelled", "cancelled"),
            CancelOutcome::Requested => became(id, "requested", "its handler has been asked to end"),
            CancelOutcome::AlreadyFinished => Err(Failure::Failed(format!("job {id} had ended before"))),
            _ => Err(no_such(*id)),
        },
        Jobs::Requeue { target: Target { id: Some(id), .. } } => match queue.requeue(JobId::from(*id))? {
            RequeueOutcome::Requeued => became(id, "requeued", "pending again"),
            RequeueOutcome::NotFinished => Err(Failure::Failed(format!("job {id} has not ended"))),
            RequeueOutcome::Conflict(other) => {
                Err(Failure::Failed(format!("job {other} is pending with the same kind and dedup key")))
            }
            _ => Err(no_such(*id)),
        },
        Jobs::Cancel { target } => {
            confirm(&target.consent, "Cancel all jobs that fit?")?;
            let done = queue.cancel_all(filter(&target.which))?;
            let document =
                || json!({ "cancelled": done.cancelled, "requested": done.requested, "skipped": done.skipped });
            print(json, document, || {
                format!("{} cancelled, {} asked to end, {} skipped", done.cancelled, done.requested, done.skipped)
            })
        }
        Jobs::Requeue { target } => requeue_all(queue, filter(&target.which), &target.consent, json),
    }
}

fn no_such(id: i64) -> Failure {
    Failure::Failed(format!("there is no job {id}"))
}

fn dead(kind: &Option<String>) -> JobFilter {
    kind.iter().fold(JobFilter::new().status(JobStatus::Dead), |filter, kind| filter.kind(kind))
}

fn filter(which: &Which) -> JobFilter {
    let filter = which.status.iter().fold(JobFilter::new(), |filter, status| filter.status((*status).into()));
    let filter = which.kind.iter().fold(filter, |filter, kind| filter.kind(kind));
    which.key.iter().fold(filter, |filter, key| filter.dedup_key(key))
}

/// A page may hold fewer jobs than there are, so pages are turned until there are enough.
fn list(queue: &Queue, filter: JobFilter, limit: u32, json: bool) -> Result<(), Failure> {
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut jobs, mut filter) = (Vec::new(), filter.limit(limit));
    if !json {
        filter = filter.without_content();
    }
    loop {
        let page = queue.jobs(filter.clone())?;
        jobs.extend(page.jobs);
        match page.next.filter(|_| jobs.len() < wanted) {
            Some(next) => filter = filter.after(next),
            None => break,
        }
    }
    jobs.truncate(wanted);
    print(json, || Value::from_iter(jobs.iter().map(show::job_json)), || show::jobs(&jobs))
}

fn show_job(queue: &Queue, id: i64, json: bool) -> Result<(), Failure> {
    let id = JobId::from(id);
    let job = queue.job(id)?.ok_or_else(|| no_such(id.get()))?;
    let (mut journal, mut after) = (Vec::new(), None);
    loop {
        let page = queue.journal(id, after)?;
        journal.extend(page.entries);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let document = || {
        let entries = Value::from_iter(journal.iter().map(show::entry_json));
        json!({ "job": show::job_json(&job), "journal": entries })
    };
    print(json, document, || show::job(&job, &journal))
}

fn requeue_all(queue: &Queue, filter: JobFilter, consent: &Consent, json: bool) -> Result<(), Failure> {
    confirm(consent, "Requeue all jobs that fit?")?;
    let done = queue.requeue_all(filter)?;
    let document = || json!({ "requeued": done.requeued, "conflicts": done.conflicts, "skipped": done.skipped });
    print(json, document, || {
        format!("{} requeued, {} in conflict, {} skipped", done.requeued, done.conflicts, done.skipped)
    })
}

fn status(queue: &Queue, json: bool) -> Result<(), Failure> {
    let stats = queue.stats()?;
    print(json, || show::stats_json(&stats), || show::stats(&stats))
}

/// Until it is interrupted, or nobody reads it any more. A server that is away for a while is waited for.
fn watch(queue: &Queue, json: bool, interval: Duration) -> Result<(), Failure> {
    loop {
        match queue.stats() {
            Ok(stats) if json => raw(format!("{}\n", show::stats_json(&stats)).as_bytes())?,
            Ok(stats) => redraw(&show::watched(&stats, interval))?,
            Err(error) if error.is_retryable() => unseen(&Failure::from(error), json)?,
            Err(error) => return Err(error.into()),
        }
        pause(interval);
    }
}

/// In the place of what cannot be shown now; beside it where programs read or a file keeps it.
fn unseen(failure: &Failure, json: bool) -> Result<(), Failure> {
    if !json && io::stdout().is_terminal() {
        return redraw(&failure.to_string());
    }
    complain(failure);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "what is watched changes by itself; nothing is waited for")]
fn pause(interval: Duration) {
    std::thread::sleep(interval);
}

fn doctor(queue: &Queue, json: bool) -> Result<ExitCode, Failure> {
    let findings = queue.doctor()?;
    print(json, || Value::from_iter(findings.iter().map(show::finding_json)), || show::findings(&findings))?;
    let errors = findings.iter().any(|finding| finding.severity >= Severity::Error);
    Ok(if errors { ExitCode::from(FOUND_ERRORS) } else { ExitCode::SUCCESS })
}
