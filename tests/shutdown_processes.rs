//! Shutdown with real processes and signals: the worker is a copy of this program, or one of the examples.
//!
//! `cargo test` builds examples before it runs tests; `cargo test --test shutdown_processes` alone does not.

#![allow(clippy::disallowed_methods, reason = "real processes are waited for by the real clock")]
#![cfg(unix)]

mod cluster;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use futures_lite::future;
use postgres::{Client, NoTls};
use serde::{Deserialize, Serialize};
use venturi::{CancellationToken, Context, Database, Outcome, ShutdownReport, Task, TaskError};

use cluster::Cluster;

type Outcomes<T = ()> = Result<T, Box<dyn Error>>;

/// Set for a copy of this program that is a worker: what it shall be like.
const ORDERS: &str = "VENTURI_SHUTDOWN_ORDERS";
/// Long enough for a loaded machine.
const WITHIN: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(3);

#[test]
fn sigterm_drains_and_loses_nothing() -> Outcomes {
    for front in [Front::Threads, Front::Futures] {
        let mut place = Place::new()?;
        let ids = place.enqueue(5)?;
        let mut worker = place.start(front, Duration::from_secs(60))?;
        worker.hear("a chore begins", 2)?;
        worker.signal("TERM")?;
        worker.hear("shutdown: draining", 1)?;
        assert!(worker.child.try_wait()?.is_none(), "it waits for what it has begun");
        place.open()?;
        let (status, said) = worker.end()?;
        assert_eq!(status.code(), Some(0), "{said:?}");
        assert!(said.iter().any(|line| line.starts_with("report: settled=2 released=0")), "{said:?}");
        assert_eq!(place.statuses()?, [("completed", 2), ("pending", 3)].map(|(it, n)| (it.to_owned(), n)).into());
        assert_eq!((place.runs(ids[0])?, place.runs(ids[4])?), (1, 0));
    }
    Ok(())
}

/// And the log says why, once for each job that is given back.
#[test]
fn sigterm_gives_back_the_futures_that_do_not_end_in_time() -> Outcomes {
    let mut place = Place::new()?;
    place.enqueue(3)?;
    let mut worker = place.start(Front::Futures, Duration::from_millis(200))?;
    worker.hear("a chore begins", 2)?;
    worker.signal("TERM")?;
    let (status, said) = worker.end()?;
    assert_eq!(status.code(), Some(0), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("report: settled=0 released=2")), "{said:?}");
    let told = said.iter().filter(|line| line.ends_with("released, shutdown_timeout")).count();
    assert_eq!((told, place.entries("released")?), (2, 2), "{said:?}");
    assert_eq!(place.statuses()?, [("pending".to_owned(), 3)].into());
    Ok(())
}

/// Of threads beyond all windows, of futures while they may still wind down.
#[test]
fn a_job_whose_worker_gets_sigkill_while_it_stops_runs_again_after_its_lease() -> Outcomes {
    for (front, drain, state) in [(Front::Threads, 100, "waiting_for_thread"), (Front::Futures, 60_000, "draining")] {
        let mut place = Place::new()?;
        let id = place.enqueue(1)?[0];
        let mut worker = place.start(front, Duration::from_millis(drain))?;
        worker.hear("a chore begins", 1)?;
        let mut peer = place.start(front, Duration::from_secs(60))?;
        peer.hear("the watch connection is up", 1)?;
        worker.signal("TERM")?;
        worker.hear(&format!("shutdown: {state}"), 1)?;
        // Longer than its lease: a worker that stops keeps what it has.
        std::thread::sleep(LEASE + Duration::from_millis(500));
        assert_eq!((place.runs(id)?, place.entries("stale-recovered")?), (1, 0));
        worker.signal("KILL")?;
        assert_eq!(worker.end()?.0.signal(), Some(9));
        assert_eq!(place.statuses()?, [("claimed".to_owned(), 1)].into());
        peer.hear("a chore begins", 1)?;
        place.open()?;
        place.wait("completed", 1)?;
        assert_eq!((place.runs(id)?, place.entries("stale-recovered")?), (2, 1), "{state}");
        assert_eq!(place.effects()?, 2, "its effect may have happened twice, so it has to be idempotent");
        peer.signal("TERM")?;
        assert_eq!(peer.end()?.0.code(), Some(0));
    }
    Ok(())
}

#[test]
fn a_worker_that_is_stopped_beyond_its_lease_while_it_drains_has_its_late_result_refused() -> Outcomes {
    for front in [Front::Threads, Front::Futures] {
        let mut place = Place::new()?;
        let id = place.enqueue(1)?[0];
        let mut worker = place.start(front, Duration::from_secs(60))?;
        worker.hear("a chore begins", 1)?;
        worker.signal("TERM")?;
        worker.hear("shutdown: draining", 1)?;
        worker.signal("STOP")?;
        let mut peer = place.start(front, Duration::from_secs(60))?;
        peer.hear("a chore begins", 1)?;
        place.open()?;
        place.wait("completed", 1)?;
        worker.signal("CONT")?;
        let (status, said) = worker.end()?;
        assert_eq!(status.code(), Some(0), "{said:?}");
        let report = said.iter().find(|line| line.starts_with("report: ")).ok_or("no report")?;
        assert!(report.starts_with("report: settled=0 released=0") && report.ends_with("late=1"), "{said:?}");
        assert_eq!((place.runs(id)?, place.entries("completed")?, place.entries("stale-recovered")?), (2, 1, 1));
        peer.signal("TERM")?;
        assert_eq!(peer.end()?.0.code(), Some(0));
    }
    Ok(())
}

/// The library installs no handler, so that a program without one ends as ever.
#[test]
#[cfg(target_os = "linux")]
fn a_worker_leaves_the_signals_as_they_are() -> Outcomes {
    for front in [Front::Threads, Front::Futures] {
        let place = Place::new()?;
        place.enqueue(2)?;
        let mut worker = place.start_deaf(front)?;
        worker.hear("a chore begins", 2)?;
        worker.signal("TERM")?;
        let (status, said) = worker.end()?;
        assert_eq!(status.signal(), Some(15), "{said:?}");

        let mut worker = place.start_deaf(front)?;
        worker.hear("the watch connection is up", 1)?;
        worker.let_go();
        let (status, said) = worker.end()?;
        assert_eq!(status.code(), Some(0), "{said:?}");
        let masks: Vec<_> = said.iter().filter_map(|line| line.strip_prefix("signals: ")).collect();
        assert_eq!(masks.len(), 2, "{said:?}");
        assert!(masks[0].contains("SigCgt") && masks[0] == masks[1], "{masks:?}");
    }
    Ok(())
}

#[test]
fn the_examples_end_in_good_order_and_at_the_second_signal_at_once() -> Outcomes {
    let cluster = Cluster::start()?;
    for name in ["serve_threads", "serve_tokio", "serve_smol"] {
        for signal in ["TERM", "INT"] {
            let url = cluster.create_database(&format!("{name}_{signal}"))?;
            let start =
                || Process::start(Command::new(example(name)?).env("DATABASE_URL", &url).env("RUST_LOG", "info"));
            let mut served = start()?;
            served.hear("naps", 1)?;
            served.signal(signal)?;
            let (status, said) = served.end()?;
            assert_eq!(status.code(), Some(0), "{name}: {said:?}");
            assert!(said.iter().any(|line| line.starts_with("ShutdownReport { settled: 1")), "{name}: {said:?}");
            let mut client = Client::connect(&url, NoTls)?;
            let row = client.query_one("SELECT status, failure_count FROM venturi.jobs", &[])?;
            assert_eq!((row.get(0), row.get(1)), ("pending", 0), "{name}: another worker goes on with it");

            // A server that takes no results keeps the worker from ending; the second signal does not care.
            let mut hurried = start()?;
            hurried.hear("naps", 1)?;
            client.batch_execute("BEGIN; LOCK TABLE venturi.live IN SHARE MODE")?;
            hurried.signal(signal)?;
            hurried.hear("shutdown: draining", 1)?;
            hurried.signal(signal)?;
            assert_eq!(hurried.end()?.0.code(), Some(130), "{name}");
        }
    }
    Ok(())
}

// The worker.

/// Tells that it has started, and ends when the place is opened.
#[derive(Serialize, Deserialize)]
struct Chore;

impl Task for Chore {
    const KIND: &'static str = "chore";
    type Carry = ();
}

#[derive(Clone)]
struct Room {
    folder: PathBuf,
}

impl Room {
    /// The effect: a line per run.
    fn enter(&self) -> Result<(), TaskError> {
        eprintln!("a chore begins");
        Ok(writeln!(fs::File::options().append(true).create(true).open(self.folder.join("effects"))?, "a run")?)
    }

    fn is_open(&self) -> bool {
        self.folder.join("open").exists()
    }
}

impl venturi::blocking::Handler<Room> for Chore {
    fn handle(&self, _context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        room.enter()?;
        while !room.is_open() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Outcome::completed())
    }
}

impl venturi::r#async::Handler<Room> for Chore {
    async fn handle(&self, _context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        room.enter()?;
        while !room.is_open() {
            smol::Timer::after(Duration::from_millis(20)).await;
        }
        Ok(Outcome::completed())
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Front {
    Threads,
    Futures,
}

#[derive(Serialize, Deserialize)]
struct Orders {
    front: Front,
    url: String,
    schema: String,
    folder: PathBuf,
    shutdown_timeout: Duration,
    /// Whether SIGTERM tells the worker to stop; else the end of its input does.
    heeds_signals: bool,
}

/// Not a test of its own: what the copies of this program do.
#[test]
fn a_worker() -> Outcomes {
    let Ok(orders) = std::env::var(ORDERS) else { return Ok(()) };
    let orders: Orders = serde_json::from_str(&orders)?;
    env_logger::builder().filter_module("venturi", log::LevelFilter::Info).format_timestamp(None).init();
    let shutdown = CancellationToken::new();
    let (by_signal, by_end, heeds_signals) = (shutdown.clone(), shutdown.clone(), orders.heeds_signals);
    if heeds_signals {
        ctrlc::set_handler(move || by_signal.cancel())?;
    }
    std::thread::spawn(move || {
        drop(std::io::stdin().read_line(&mut String::new()));
        // Whoever started this one is gone, or has let it go.
        if heeds_signals { std::process::exit(3) } else { by_end.cancel() }
    });
    eprintln!("signals: {}", signals());
    let report = run(orders, shutdown)?;
    eprintln!("signals: {}", signals());
    eprintln!("report: settled={} released={} late={}", report.settled, report.released, report.late);
    Ok(())
}

fn run(orders: Orders, shutdown: CancellationToken) -> Outcomes<ShutdownReport> {
    let Orders { front, url, schema, folder, shutdown_timeout, .. } = orders;
    let (database, room) = (Database::new(&url)?.schema(&schema)?, Room { folder });
    macro_rules! worker {
        ($front:ident) => {
            venturi::$front::Worker::builder(room)
                .database(database)
                .register::<Chore>()
                .concurrency(2)
                .lease(LEASE)
                .shutdown_timeout(shutdown_timeout)
                .handler_grace(Duration::from_millis(100))
                .build()?
        };
    }
    Ok(match front {
        Front::Threads => worker!(blocking).run(shutdown)?,
        Front::Futures => future::block_on(worker!(r#async).run(shutdown))?,
    })
}

/// Which signals the process ignores, and which it catches.
fn signals() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter(|line| ["SigIgn", "SigCgt"].iter().any(|mask| line.starts_with(mask)));
    masks.collect::<Vec<_>>().join(" ").replace('\t', "")
}

// The test's side.

/// A schema and a folder of a test's own.
struct Place {
    url: String,
    schema: String,
    folder: PathBuf,
    client: Client,
}

impl Place {
    fn new() -> Outcomes<Self> {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let nth = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let schema = format!("processes_{}_{nth}", std::process::id());
        let url = cluster::shared_url()?;
        let folder = std::env::temp_dir().join(&schema);
        fs::create_dir(&folder)?;
        let client = Client::connect(&url, NoTls)?;
        venturi::blocking::migrate(&Database::new(&url)?.schema(&schema)?)?;
        Ok(Self { url, schema, folder, client })
    }

    fn enqueue(&self, count: usize) -> Outcomes<Vec<i64>> {
        let queue = venturi::blocking::Queue::connect(&Database::new(&self.url)?.schema(&self.schema)?)?;
        let jobs = queue.enqueue_many((0..count).map(|_| Chore))?;
        Ok(jobs.into_iter().map(|job| job.id.get()).collect())
    }

    /// Lets all handlers end.
    fn open(&self) -> Outcomes {
        Ok(fs::write(self.folder.join("open"), "")?)
    }

    fn start(&self, front: Front, shutdown_timeout: Duration) -> Outcomes<Process> {
        self.start_with(front, shutdown_timeout, true)
    }

    /// One that does nothing about signals, as the library does.
    fn start_deaf(&self, front: Front) -> Outcomes<Process> {
        self.start_with(front, WITHIN, false)
    }

    fn start_with(&self, front: Front, shutdown_timeout: Duration, heeds_signals: bool) -> Outcomes<Process> {
        let (url, schema, folder) = (self.url.clone(), self.schema.clone(), self.folder.clone());
        let orders = Orders { front, url, schema, folder, shutdown_timeout, heeds_signals };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "a_worker", "--nocapture"]);
        Process::start(command.env(ORDERS, serde_json::to_string(&orders)?))
    }

    fn effects(&self) -> Outcomes<usize> {
        Ok(fs::read_to_string(self.folder.join("effects"))?.lines().count())
    }

    fn statuses(&mut self) -> Outcomes<BTreeMap<String, i64>> {
        let sql = format!("SELECT status, count(*) FROM {}.jobs GROUP BY status", self.schema);
        Ok(self.client.query(&sql, &[])?.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    fn runs(&mut self, id: i64) -> Outcomes<i32> {
        let sql = format!("SELECT run_count FROM {}.jobs WHERE id = $1", self.schema);
        Ok(self.client.query_one(&sql, &[&id])?.get(0))
    }

    fn entries(&mut self, event: &str) -> Outcomes<i64> {
        let sql = format!("SELECT count(*) FROM {}.journal_entries WHERE event = $1", self.schema);
        Ok(self.client.query_one(&sql, &[&event])?.get(0))
    }

    fn wait(&mut self, status: &str, count: i64) -> Outcomes {
        let deadline = Instant::now() + WITHIN;
        while self.statuses()?.get(status) != Some(&count) {
            if Instant::now() >= deadline {
                return Err(format!("not {count} {status} but {:?}", self.statuses()?).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        let _ = self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
    }
}

/// A process and what it says; killed when it is dropped.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Process {
    fn start(command: &mut Command) -> Outcomes<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take().ok_or("no pipe")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        Ok(Self { child, stdin, lines, said: Vec::new() })
    }

    /// Waits until it has said this so often.
    fn hear(&mut self, text: &str, count: usize) -> Outcomes {
        let deadline = Instant::now() + WITHIN;
        while self.said.iter().filter(|line| line.contains(text)).count() < count {
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(wait) {
                Ok(line) => self.said.push(line),
                Err(_) => return Err(format!("{text:?} was not said {count} times, but {:#?}", self.said).into()),
            }
        }
        Ok(())
    }

    /// Sends a signal by its name.
    fn signal(&self, name: &str) -> Outcomes {
        let pid = self.child.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "sh", name, &pid]).status()?;
        if status.success() { Ok(()) } else { Err(format!("SIG{name} could not be sent").into()) }
    }

    /// Ends its input.
    fn let_go(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end: how it ended, and all that it said.
    fn end(mut self) -> Outcomes<(ExitStatus, Vec<String>)> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(wait) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(format!("it has not ended: {:#?}", self.said).into()),
            }
        }
        Ok((self.child.wait()?, std::mem::take(&mut self.said)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process can be killed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Examples stand beside the folder of the tests.
fn example(name: &str) -> Outcomes<PathBuf> {
    let tests = std::env::current_exe()?;
    let folder = tests.parent().and_then(Path::parent).ok_or("no folder")?.join("examples");
    let program = folder.join(name);
    let command = "cargo build --features blocking,async --examples";
    if program.is_file() { Ok(program) } else { Err(format!("{} is missing: `{command}`", program.display()).into()) }
}
