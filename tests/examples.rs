//! The examples, run as their users run them, each in a database of its own.
//!
//! `cargo test` builds examples before it runs tests; `cargo test --test examples` alone does not. `serve_threads`,
//! `serve_tokio` and `serve_smol` are run by `shutdown_processes.rs`, `digest` by `digest.rs`; those in packages of their
//! own by `scripts/examples`.

#![allow(clippy::disallowed_methods, reason = "real processes are waited for by the real clock")]
#![cfg(unix)]

mod cluster;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use cluster::Cluster;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Long enough for a loaded machine; each takes a second.
const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn the_bookmark_service_stores_each_title_once_and_mails_each_once() -> Outcome {
    let mut service = Example::start("bookmarks")?;
    service.hear("Notes on the Analytical Engine is bookmarked")?;
    service.hear("A busy page is bookmarked")?;
    service.wait_for("SELECT count(*) FROM venturi.jobs WHERE status IN ('pending', 'claimed')", 0)?;
    service.terminate()?;
    assert_eq!(service.end()?, Some(0));
    assert_eq!(service.said.iter().filter(|line| line.contains("mails")).count(), 2, "{:#?}", service.said);
    let titles = service.client.query("SELECT title FROM bookmark ORDER BY title", &[])?;
    let titles: Vec<String> = titles.iter().map(|row| row.get(0)).collect();
    assert_eq!(titles, ["A busy page", "Notes on the Analytical Engine"]);
    let counted = |status: &str| format!("SELECT count(*) FROM venturi.jobs WHERE status = '{status}'");
    assert_eq!((service.count(&counted("completed"))?, service.count(&counted("dead"))?), (4, 1));
    assert_eq!(service.count("SELECT count(*) FROM venturi.journal_entries WHERE event = 'retried'")?, 1);
    Ok(())
}

/// As a reader has copied them.
#[test]
fn the_first_programs_of_the_readme_run_their_job_and_end() -> Outcome {
    let readme = include_str!("../README.md");
    for (name, program) in
        [("first", include_str!("../examples/first.rs")), ("first_async", include_str!("../examples/first_async.rs"))]
    {
        let (_, copied) = program.split_once("\n\n").ok_or("no head")?;
        assert!(readme.contains(&format!("```rust,no_run\n{copied}```")), "README has another program than {name}");
        let mut program = Example::start(name)?;
        assert_eq!(program.end()?, Some(0));
        assert_eq!(program.said, ["to ada@example.org", "1 settled"]);
    }
    Ok(())
}

#[test]
fn the_order_goes_from_step_to_step_with_its_carry() -> Outcome {
    let mut program = Example::start("steps")?;
    assert_eq!(program.end()?, Some(0));
    let expected = [
        "run 1: order 7 is reserved",
        "run 2: order 7 is charged",
        "run 3: order 7 is shipped, with the receipt for job 1",
        "3 runs",
    ];
    assert_eq!(program.said, expected);
    Ok(())
}

#[test]
fn no_more_of_the_capped_kind_run_at_once() -> Outcome {
    let mut program = Example::start("capped")?;
    assert_eq!(program.end()?, Some(0));
    assert_eq!(program.said, ["26 jobs, at most 2 resizes at once"]);
    Ok(())
}

#[test]
fn three_changes_become_one_job() -> Outcome {
    let mut program = Example::start("merge")?;
    assert_eq!(program.end()?, Some(0));
    let expected = [
        "line 3 of page 7: job 1, Inserted",
        "line 1 of page 7: job 1, Merged",
        "line 2 of page 7: job 1, Merged",
        "job 1 indexes the lines {1, 2, 3} of page 7",
        "1 run",
    ];
    assert_eq!(program.said, expected);
    Ok(())
}

/// The guide's, with the tables that they speak of.
#[test]
fn the_statements_of_the_guide_do_what_it_says() -> Outcome {
    let url = cluster()?.create_database("guide")?;
    venturi::blocking::migrate(&venturi::Database::new(&url)?)?;
    let mut client = Client::connect(&url, NoTls)?;
    client.batch_execute(
        "CREATE TABLE old_job (kind text NOT NULL, payload jsonb NOT NULL, run_at timestamptz NOT NULL);
         INSERT INTO old_job SELECT 'send_email', '{\"to\": \"ada\"}', now() + n * interval '1 day' FROM generate_series(1, 3) AS n",
    )?;
    let guide = include_str!("../docs/guide.md");
    for block in guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        client.batch_execute(block)?;
    }
    let moved = "SELECT count(*) FROM venturi.jobs WHERE status = 'pending' AND visible_at > now()";
    assert_eq!(client.query_one(moved, &[])?.get::<_, i64>(0), 3);
    assert_eq!(client.query_one("SELECT count(*) FROM old_job", &[])?.get::<_, i64>(0), 0);
    Ok(())
}

/// An example while it runs, and what it says on its standard output. Dropping it ends it.
struct Example {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    client: Client,
}

impl Example {
    fn start(name: &str) -> Outcome<Self> {
        let url = cluster()?.create_database(name)?;
        let own = std::env::current_exe()?;
        let folder = own.parent().and_then(Path::parent).ok_or("no folder above the test's program")?;
        let program = folder.join("examples").join(name);
        if !program.is_file() {
            let command = "cargo build --features blocking,async --examples";
            return Err(format!("{} is missing: `{command}` makes it", program.display()).into());
        }
        let client = Client::connect(&url, NoTls)?;
        let mut command = Command::new(program);
        command.env("DATABASE_URL", url).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        let out = child.stdout.take().ok_or("no pipe")?;
        thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { child, lines, said: Vec::new(), client })
    }

    /// Waits until it has said this.
    fn hear(&mut self, text: &str) -> Outcome {
        let deadline = Instant::now() + WITHIN;
        while !self.said.iter().any(|line| line.contains(text)) {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            self.said.push(line.map_err(|_| format!("{text:?} was not said, but {:#?}", self.said))?);
        }
        Ok(())
    }

    fn terminate(&self) -> Outcome {
        let status =
            Command::new("sh").args(["-c", "kill -s TERM \"$1\"", "sh", &self.child.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err("it is gone already".into()) }
    }

    /// Hears it out and waits for its end; its code, if no signal has ended it.
    fn end(&mut self) -> Outcome<Option<i32>> {
        let deadline = Instant::now() + WITHIN;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.said.push(line);
        }
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() >= deadline {
                return Err(format!("it did not end, but said {:#?}", self.said).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn count(&mut self, sql: &str) -> Outcome<i64> {
        Ok(self.client.query_one(sql, &[])?.try_get(0)?)
    }

    fn wait_for(&mut self, sql: &str, expected: i64) -> Outcome {
        let deadline = Instant::now() + WITHIN;
        while self.count(sql)? != expected {
            if Instant::now() >= deadline {
                return Err(format!("{sql} is not {expected} but {}", self.count(sql)?).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One for all of them.
fn cluster() -> Outcome<&'static Cluster> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let started = SHARED.get_or_init(|| Cluster::start().map_err(|error| error.to_string()));
    Ok(started.as_ref().map_err(String::as_str)?)
}
