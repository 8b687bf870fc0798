//! The example `digest`, as its users run it: with either front-end, killed, interrupted, and started again.
//!
//! `cargo test` builds examples before it runs tests; `cargo test --test digest` alone does not.

#![allow(clippy::disallowed_methods, reason = "real processes are waited for by the real clock")]

mod cluster;

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls, Transaction};

const FRONTS: [&str; 2] = ["blocking", "async"];
const FILES: usize = 300;
/// A file in the middle, at which a run is held.
const HELD: usize = 150;
/// Long enough for a loaded machine; a run takes a second, and one after a kill waits five more for a lease.
const WITHIN: Duration = Duration::from_secs(90);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[test]
fn every_file_is_digested_once_and_left_out_while_it_does_not_change() -> Outcome {
    for front in FRONTS {
        let mut place = Place::new(FILES)?;
        place.add_awkward_files()?;
        let files = place.count_files()?;

        let first = place.start(front, &["--verify-all"])?.end()?;
        assert_eq!(first.code, Some(0), "{first:?}");
        assert!(first.out.contains(&format!("{files} files have exactly one")), "{first:?}");
        assert!(first.out.contains(&format!("{files} files (all) against sha256sum and wc -l: 0 differ")), "{first:?}");
        assert_eq!((place.rows()?, place.jobs("completed")?), (files, files));

        let second = place.start(front, &[])?.end()?;
        assert_eq!(second.code, Some(0), "{second:?}");
        assert!(second.err.contains("0 jobs enqueued"), "{second:?}");
        assert!(second.out.contains(&format!("{files} files were left out")), "{second:?}");

        fs::write(place.file(7), "changed\n")?;
        let third = place.start(front, &["--verify-all"])?.end()?;
        assert_eq!(third.code, Some(0), "{third:?}");
        assert_eq!((place.rows()?, place.jobs("completed")?), (files, files + 1));
    }
    Ok(())
}

#[test]
fn several_workers_share_the_files() -> Outcome {
    for front in FRONTS {
        let mut place = Place::new(FILES)?;
        let run = place.start(front, &["--workers", "3", "--concurrency", "4", "--verify-all"])?.end()?;
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!((place.rows()?, place.jobs("completed")?), (FILES, FILES));
    }
    Ok(())
}

#[test]
fn after_a_kill_the_next_run_leaves_exactly_one_row_per_file_and_no_second_job() -> Outcome {
    for (front, next) in [("blocking", "async"), ("async", "blocking")] {
        let mut place = Place::new(FILES)?;
        let mut held = place.hold_a_file(front)?;
        let holder = held.pid()?;
        let writer = held.hold()?;
        let mut killed = place.start(front, &["--concurrency", "1"])?;
        place.await_the_held(holder)?;
        killed.child.kill()?;
        killed.end()?;
        writer.rollback()?;

        let run = place.start(next, &["--verify-all"])?.end()?;
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.err.contains("0 jobs enqueued"), "{run:?}");
        assert_eq!((place.rows()?, place.jobs("completed")?, place.all_jobs()?), (FILES, FILES, FILES));
        assert_eq!(place.stale_recovered()?, 1);
    }
    Ok(())
}

#[test]
fn an_interrupted_run_finishes_what_it_has_begun_and_the_next_one_does_the_rest() -> Outcome {
    for (front, signal) in [("blocking", "INT"), ("async", "INT"), ("blocking", "TERM"), ("async", "TERM")] {
        let mut place = Place::new(FILES)?;
        let mut held = place.hold_a_file(front)?;
        let holder = held.pid()?;
        let writer = held.hold()?;
        let mut interrupted = place.start(front, &["--concurrency", "1"])?;
        place.await_the_held(holder)?;
        send(signal, interrupted.child.id())?;
        interrupted.await_text("stopping")?;
        assert_eq!(interrupted.child.try_wait()?, None, "it did not wait for the file in hand");
        writer.rollback()?;

        let run = interrupted.end()?;
        assert_eq!(run.code, Some(130), "{run:?}");
        assert_eq!((place.rows()?, place.jobs("claimed")?), (HELD + 1, 0), "{run:?}");
        let rest = place.start(front, &["--verify-all"])?.end()?;
        assert_eq!(rest.code, Some(0), "{rest:?}");
        assert_eq!((place.rows()?, place.all_jobs()?), (FILES, FILES));
    }
    Ok(())
}

#[test]
fn a_file_that_cannot_be_read_is_dead_with_a_reason() -> Outcome {
    for front in FRONTS {
        let mut place = Place::new(FILES)?;
        let mut held = place.hold_a_file(front)?;
        // Later ones than the held file, so that they are still waiting.
        let (gone, folder) = (held.path_of(HELD + 10)?, held.path_of(HELD + 20)?);
        let holder = held.pid()?;
        let writer = held.hold()?;
        let run = place.start(front, &["--concurrency", "1"])?;
        place.await_the_held(holder)?;
        fs::remove_file(&gone)?;
        fs::remove_file(&folder)?;
        fs::create_dir(&folder)?;
        writer.rollback()?;

        let run = run.end()?;
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.out.contains("unreadable  2 files"), "{run:?}");
        assert!(run.out.contains(&format!("{}: No such file or directory", gone.display())), "{run:?}");
        assert!(run.out.contains(&format!("{}: it has become a directory", folder.display())), "{run:?}");
        assert_eq!((place.rows()?, place.jobs("dead")?), (FILES - 2, 2));
        // Permanent: one run each.
        assert_eq!(place.all_runs()?, FILES);
    }
    Ok(())
}

#[test]
fn a_wrong_row_is_found_by_the_tools_and_a_lost_one_is_written_again() -> Outcome {
    let mut place = Place::new(FILES)?;
    assert_eq!(place.start("blocking", &[])?.end()?.code, Some(0));
    let table = place.table();
    place.client.execute(&format!("UPDATE {table} SET sha256 = sha256(path::bytea) WHERE path LIKE '%/7'"), &[])?;
    place.client.execute(&format!("DELETE FROM {table} WHERE path LIKE '%/8'"), &[])?;
    let run = place.start("blocking", &["--verify-all"])?.end()?;
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.err.contains(" 1 jobs enqueued"), "{run:?}");
    assert!(run.out.contains("1 differ"), "{run:?}");
    assert!(run.out.contains(&format!("{}: ", place.file(7).display())), "{run:?}");
    Ok(())
}

#[test]
fn a_wrong_command_line_is_refused_with_the_reason() -> Outcome {
    let wrong = [
        (vec![], "--front blocking or --front async is needed"),
        (vec!["--front", "green"], "not \"green\""),
        (vec!["--front", "async", "--workers", "many"], "--workers takes a number from 0 to 16"),
        (vec!["--front", "async", "--concurrency", "0"], "--concurrency takes a number from 1 to 64"),
        (vec!["--front", "async", "--schema"], "--schema needs a value"),
        (vec!["--front", "async", "--fast"], "no option --fast"),
        (vec!["--front", "async", "/usr", "/var"], "more than one folder: /var"),
    ];
    for (arguments, reason) in wrong {
        let output = Command::new(example()?).args(&arguments).output()?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason) && said.contains("usage: digest"), "{said}");
    }
    let missing = Command::new(example()?).args(["--front", "async", "/"]).env_remove("DATABASE_URL").output()?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr)?.contains("DATABASE_URL is not set"));
    Ok(())
}

/// A folder with small files, and a schema of its own.
struct Place {
    folder: PathBuf,
    schema: String,
    url: String,
    client: Client,
}

impl Place {
    fn new(files: usize) -> Outcome<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("digest_{}_{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let url = cluster::shared_url()?;
        let client = Client::connect(&url, NoTls)?;
        let folder = env::temp_dir().canonicalize()?.join(&name);
        let place = Self { folder, schema: format!("{name} \"q\""), url, client };
        for number in 0..files {
            let file = place.file(number);
            fs::create_dir_all(file.parent().ok_or("no parent")?)?;
            fs::write(file, format!("{number}\n").repeat(number))?;
        }
        Ok(place)
    }

    /// Spread over ten folders.
    fn file(&self, number: usize) -> PathBuf {
        self.folder.join((number % 10).to_string()).join(number.to_string())
    }

    fn add_awkward_files(&self) -> Outcome {
        let names: [&[u8]; 6] = [
            b"not UTF-8 \xff\xfe",
            b"%25 \\ \"quoted\" 'too'",
            b"two\nlines",
            "ünïcode".as_bytes(),
            b"-n",
            &[b'x'; 250],
        ];
        for name in names {
            fs::write(self.folder.join(OsStr::from_bytes(name)), "no line feed at the end")?;
        }
        // More than is read at once, and bytes that are no text.
        fs::write(self.folder.join("large"), [0, b'\n', 0xff].repeat(300_000))?;
        fs::create_dir(self.folder.join("empty folder"))?;
        // Not followed, or each file would be there twice and the walk would never end.
        std::os::unix::fs::symlink(&self.folder, self.folder.join("link"))?;
        std::os::unix::fs::symlink("nowhere", self.folder.join("dangling link"))?;
        let pipe = Command::new("mkfifo").arg(self.folder.join("pipe")).status()?;
        if pipe.success() { Ok(()) } else { Err("mkfifo failed".into()) }
    }

    fn count_files(&self) -> Outcome<usize> {
        let output = Command::new("find").arg(&self.folder).args(["-type", "f", "-print0"]).output()?;
        Ok(output.stdout.iter().filter(|byte| **byte == 0).count())
    }

    fn start(&self, front: &str, more: &[&str]) -> Outcome<Running> {
        let mut command = Command::new(example()?);
        command.args(["--front", front, "--schema", &self.schema]).args(more).arg(&self.folder);
        Running::start(command.env("DATABASE_URL", &self.url))
    }

    /// Enqueues all, and prepares to hold the run at the file that comes up in the middle.
    fn hold_a_file(&self, front: &str) -> Outcome<Held> {
        let run = self.start(front, &["--workers", "0"])?.end()?;
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut client = Client::connect(&self.url, NoTls)?;
        let sql = format!("SELECT payload ->> 'path' FROM {}.jobs ORDER BY created_at, id", self.queue());
        let paths = client.query(&sql, &[])?.iter().map(|row| row.get(0)).collect();
        Ok(Held { client, table: self.table(), paths })
    }

    /// Waits until the run has come to the file that this backend holds, and is in the middle of it.
    fn await_the_held(&mut self, holder: i32) -> Outcome {
        let deadline = Instant::now() + WITHIN;
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))";
        while !self.client.query_one(sql, &[&holder])?.get::<_, bool>(0) {
            if Instant::now() >= deadline {
                return Err(format!("the run stopped before the file that is held, with {} rows", self.rows()?).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((self.rows()?, self.jobs("claimed")?), (HELD, 1));
        Ok(())
    }

    fn rows(&mut self) -> Outcome<usize> {
        let (own, table) = (format!("{}_results", self.schema), self.table());
        // The program makes the table.
        let made = "SELECT count(*) FROM pg_tables WHERE schemaname = $1";
        if self.client.query_one(made, &[&own])?.get::<_, i64>(0) == 0 {
            return Ok(0);
        }
        self.count(&format!("SELECT count(*) FROM {table}"))
    }

    fn jobs(&mut self, status: &str) -> Outcome<usize> {
        let queue = self.queue();
        self.count(&format!("SELECT count(*) FROM {queue}.jobs WHERE status = '{status}'"))
    }

    fn all_jobs(&mut self) -> Outcome<usize> {
        let queue = self.queue();
        self.count(&format!("SELECT count(*) FROM {queue}.jobs"))
    }

    fn all_runs(&mut self) -> Outcome<usize> {
        let queue = self.queue();
        self.count(&format!("SELECT sum(run_count) FROM {queue}.jobs"))
    }

    fn stale_recovered(&mut self) -> Outcome<usize> {
        let queue = self.queue();
        self.count(&format!("SELECT count(*) FROM {queue}.journal_entries WHERE event = 'stale-recovered'"))
    }

    fn count(&mut self, sql: &str) -> Outcome<usize> {
        Ok(usize::try_from(self.client.query_one(sql, &[])?.try_get::<_, i64>(0)?)?)
    }

    fn queue(&self) -> String {
        quoted(&self.schema)
    }

    fn table(&self) -> String {
        format!("{}.files", quoted(&format!("{}_results", self.schema)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        let (queue, own) = (self.queue(), quoted(&format!("{}_results", self.schema)));
        let _ = self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {queue}, {own} CASCADE"));
    }
}

/// The means to stop a run in the middle: whoever writes a certain row has to wait.
struct Held {
    client: Client,
    table: String,
    /// As stored, in the order in which they are claimed.
    paths: Vec<String>,
}

impl Held {
    /// Until the transaction ends.
    fn hold(&mut self) -> Outcome<Transaction<'_>> {
        let path = self.paths.get(HELD).ok_or("too few files")?.clone();
        let mut transaction = self.client.transaction()?;
        let sql = format!(
            "INSERT INTO {} (path, size, lines, sha256, mtime, job, run, front, digested_at)
             VALUES ($1, 0, 0, sha256(''), 0, 0, 0, 'nobody', now())",
            self.table
        );
        transaction.execute(&sql, &[&path])?;
        Ok(transaction)
    }

    /// Of the backend that holds.
    fn pid(&mut self) -> Outcome<i32> {
        Ok(self.client.query_one("SELECT pg_backend_pid()", &[])?.try_get(0)?)
    }

    fn path_of(&self, nth: usize) -> Outcome<PathBuf> {
        Ok(self.paths.get(nth).ok_or("too few files")?.into())
    }
}

/// The example while it runs. Dropping it ends it.
struct Running {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// The example when it has ended.
#[derive(Debug)]
struct Ended {
    /// `None`: a signal ended it.
    code: Option<i32>,
    out: String,
    err: String,
}

impl Running {
    fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (out, out_reader) = collect(child.stdout.take().ok_or("no pipe")?);
        let (err, err_reader) = collect(child.stderr.take().ok_or("no pipe")?);
        Ok(Self { child, out, err, readers: vec![out_reader, err_reader] })
    }

    /// Waits until the standard error contains `text`.
    fn await_text(&self, text: &str) -> Outcome {
        let deadline = Instant::now() + WITHIN;
        while !read(&self.err).contains(text) {
            if Instant::now() >= deadline {
                return Err(format!("{text:?} was not said, but: {}", read(&self.err)).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(mut self) -> Outcome<Ended> {
        let deadline = Instant::now() + WITHIN;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() >= deadline {
                return Err(format!("it did not end, but said: {}{}", read(&self.out), read(&self.err)).into());
            }
            thread::sleep(Duration::from_millis(5));
        };
        for reader in self.readers.drain(..) {
            reader.join().map_err(|_| "a reader panicked")?;
        }
        Ok(Ended { code: status.code(), out: read(&self.out), err: read(&self.err) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> (Arc<Mutex<String>>, thread::JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let writer = Arc::clone(&text);
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            let some = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            writer.lock().unwrap_or_else(PoisonError::into_inner).push_str(&some);
        }
    });
    (text, reader)
}

fn read(text: &Mutex<String>) -> String {
    text.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Beside the folder of this test's own program.
fn example() -> Outcome<PathBuf> {
    let own = env::current_exe()?;
    let profile = own.parent().and_then(Path::parent).ok_or("no folder above the test's program")?;
    let example = profile.join("examples").join("digest");
    if example.is_file() {
        return Ok(example);
    }
    let command = "cargo build --features blocking,async --example digest";
    Err(format!("{} is missing: `{command}` makes it", example.display()).into())
}

fn send(signal: &str, pid: u32) -> Outcome {
    let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "sh", signal, &pid.to_string()]).status()?;
    if status.success() { Ok(()) } else { Err(format!("no process {pid}").into()) }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
