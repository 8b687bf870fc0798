//! A schema for a test, and the binary in it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use postgres::types::FromSql;
use postgres::{Client, NoTls};

/// A schema of its own, dropped with it.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl Place {
    pub(crate) fn empty(name: &str) -> Self {
        let url = std::env::var("DATABASE_URL").expect("run it with scripts/test, which starts a server");
        Self::at(name, url)
    }

    /// On a server of the test's own, which has to live longer.
    pub(crate) fn at(name: &str, url: String) -> Self {
        Self { url, schema: format!("cli_{name}_{}", std::process::id()) }
    }

    pub(crate) fn new(name: &str) -> Self {
        let place = Self::empty(name);
        assert_eq!(place.venturi(&["migrate"]).code, 0);
        place
    }

    pub(crate) fn venturi(&self, arguments: &[&str]) -> Ended {
        self.venturi_at(&self.url, arguments)
    }

    pub(crate) fn venturi_at(&self, url: &str, arguments: &[&str]) -> Ended {
        let mut command = self.command(arguments);
        Ended::of(&command.env("DATABASE_URL", url).stdin(Stdio::null()).output().expect("the binary runs"))
    }

    /// As an SQL identifier.
    fn quoted(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// With something to read.
    pub(crate) fn venturi_reading(&self, arguments: &[&str], text: &str) -> Ended {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        // Not every command reads what it could.
        let _ = child.stdin.take().expect("a pipe").write_all(text.as_bytes());
        Ended::of(&child.wait_with_output().expect("it ends"))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // With a Ctrl-C that ends it, which what runs in a shell's background may not have.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_venturi")]);
        command.env("DATABASE_URL", &self.url).args(["--schema", &self.schema]).args(arguments);
        command
    }

    pub(crate) fn value<T: for<'a> FromSql<'a>>(&self, sql: &str) -> T {
        let mut client = Client::connect(&self.url, NoTls).expect("a connection");
        let row = client.query_one(&sql.replace("{schema}", &self.quoted()), &[]);
        row.expect("the test's own statements are right").get(0)
    }

    pub(crate) fn run(&self, sql: &str) {
        let mut client = Client::connect(&self.url, NoTls).expect("a connection");
        client.batch_execute(&sql.replace("{schema}", &self.quoted())).expect("the test's own statements are right");
    }

    /// A dead job, whose note a terminal would obey.
    pub(crate) fn add_dead(&self) {
        self.run(
            "INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, \
             kind, claimed_by, payload, note) \
             VALUES (7, now(), now(), 1, 1, 1, 4, 4, 'mail', 'ada', '{\"to\":1}', E'red \\x1b[31m')",
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run("DROP SCHEMA IF EXISTS {schema} CASCADE");
    }
}

pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).expect("one JSON document")
    }
}
