//! Computes SHA-256, size and line count of every file below a folder, one job per file, with either front-end.
//!
//! ```sh
//! cargo run --release --features blocking,async --example digest -- --front async --workers 2 /usr/share
//! ```
//!
//! It needs a PostgreSQL server in `DATABASE_URL` (`cargo run --example cluster -- COMMAND` starts a private one). It
//! may be interrupted or killed at any time, and started again: what was done stays done, what was pending is finished,
//! and files that have not changed are left out. At the end it compares its results with `sha256sum` and `wc -l`.
//!
//! Read [`task`] first, then [`blocking`] beside [`asynchronous`]; the rest is what any such program needs.
#![allow(
    clippy::disallowed_methods,
    reason = "the ban on clocks, sleeps and threads is for the library; a program may have its own"
)]

mod account;
mod arguments;
mod asynchronous;
mod blocking;
mod content;
mod folder;
mod front;
mod path_text;
mod progress;
mod results;
mod summary;
mod task;
mod verify;

use std::env;
use std::error::Error;
use std::process::{self, ExitCode};
use std::thread;

use venturi::{CancellationToken, Database, ShutdownReport};

use account::Account;
use arguments::{Arguments, Request, USAGE};
use folder::Walk;
use progress::Progress;
use results::Results;
use summary::Summary;
use task::DigestFile;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const WRONG_USAGE: u8 = 2;
/// As shells have it for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// How the program ends when nothing hindered it.
enum End {
    AllRight,
    SomethingIsWrong,
    Interrupted,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let arguments = match Arguments::parse(env::args_os().skip(1)) {
        Ok(Request::Run(arguments)) => arguments,
        Ok(Request::Help) => return summary::print(USAGE).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Err(problem) => {
            let usage = USAGE.lines().next().unwrap_or_default();
            eprintln!("digest: {problem}\n{usage}\n`digest --help` tells more");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    match run(&arguments) {
        Ok(End::AllRight) => ExitCode::SUCCESS,
        Ok(End::SomethingIsWrong) => ExitCode::FAILURE,
        Ok(End::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) => {
            eprintln!("digest: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<End> {
    let stop = stop_on_signals()?;
    let database = Database::from_env()?.schema(&arguments.schema)?;
    arguments.front.migrate(&database)?;
    let results = Results::open(&arguments.schema)?;

    let planning = results.take_turn()?;
    results.create_table()?;
    let mut progress = Progress::new(&results)?;
    let walk = folder::walk(&arguments.folder)?;
    let tasks = tasks_for(&walk, &results)?;
    let enqueued = arguments.front.enqueue(&database, &tasks, &stop)?;
    drop(planning);
    eprintln!("digest: {} files, {enqueued} jobs enqueued", walk.files.len());

    if arguments.workers > 0 && !stop.is_cancelled() {
        let reports = drain(arguments, &database, &results, &mut progress, &stop)?;
        summary::tell_left_claimed(&reports);
    }
    if stop.is_cancelled() {
        summary::tell_interrupted(&results)?;
        return Ok(End::Interrupted);
    }
    if arguments.workers == 0 {
        return Ok(End::AllRight);
    }
    conclude(arguments, &walk, &results, &progress)
}

/// One job for each file that has no row of its present size and time, and no job that waits or runs.
fn tasks_for(walk: &Walk, results: &Results) -> Result<Vec<DigestFile>> {
    let (rows, underway) = (results.rows()?, results.underway()?);
    let is_done = |file: &folder::Found| rows.get(&file.path).is_some_and(|row| row.is_of(file));
    let open = walk.files.iter().filter(|file| !is_done(file) && !underway.contains(&file.path));
    Ok(open.map(|file| DigestFile { path: file.path.clone() }).collect())
}

/// Runs workers until no job is left, `stop` is cancelled, or a worker gives up.
fn drain(
    arguments: &Arguments,
    database: &Database,
    results: &Results,
    progress: &mut Progress<'_>,
    stop: &CancellationToken,
) -> Result<Vec<ShutdownReport>> {
    let enough = stop.child_token();
    thread::scope(|scope| {
        let workers = scope.spawn(|| arguments.front.work(database, results, arguments, &enough));
        let watched = progress.watch(&enough);
        if stop.is_cancelled() {
            eprintln!("digest: stopping, running files are finished first; once more to stop at once");
        }
        enough.cancel();
        let reports = workers.join().map_err(|_| "the workers' thread panicked")??;
        watched.map(|()| reports)
    })
}

/// Says what became of every file, after having asked others for their opinion.
fn conclude(arguments: &Arguments, walk: &Walk, results: &Results, progress: &Progress<'_>) -> Result<End> {
    let account = Account::new(walk, results, progress.started())?;
    let findings = verify::compare(&account, arguments.verify_all)?;
    let summary = Summary { arguments, walk, account: &account, findings: &findings, progress };
    summary.print()?;
    let right = account.is_complete() && findings.all_agree();
    Ok(if right { End::AllRight } else { End::SomethingIsWrong })
}

/// A token that the first Ctrl-C or SIGTERM cancels; the second one ends the program on the spot.
///
/// Even then nothing is lost: the jobs that were running are run again when their leases have expired.
fn stop_on_signals() -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let token = stop.clone();
    ctrlc::set_handler(move || {
        if token.is_cancelled() {
            process::exit(i32::from(INTERRUPTED));
        }
        token.cancel();
    })?;
    Ok(stop)
}

/// An error and what caused it, in one line.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
