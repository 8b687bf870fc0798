//! `status --watch` where its output is read by a program, or kept.
#![expect(
    clippy::disallowed_methods,
    reason = "the ban on clocks and threads is for the library; this waits for a process"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::place::Place;

/// A call waits ten seconds for a server that is away.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ended with the test.
struct Watching {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Watching {
    fn start(place: &Place, more: &[&str]) -> Self {
        let mut command = place.command(&["status", "--watch", "--interval", "100ms"]);
        let mut child =
            command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let out = lines(child.stdout.take().expect("a pipe"));
        let err = lines(child.stderr.take().expect("a pipe"));
        Self { child, out, err }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended, which is for the test to notice.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || BufReader::new(from).lines().map_while(Result::ok).try_for_each(|it| sender.send(it)));
    receiver
}

fn first(lines: &Receiver<String>, fits: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).expect("such a line comes in time");
        if fits(&line) {
            return line;
        }
    }
}

#[test]
fn each_table_says_of_which_instant_it_is() {
    let place = Place::new("dated");
    assert!(place.venturi(&["status", "--json"]).json()["at"].is_string(), "also of an empty queue");
    let watching = Watching::start(&place, &[]);
    let dated = |line: &str| line.starts_with("20") && line.ends_with("Z, every 100ms");
    for _ in 0..2 {
        first(&watching.out, dated);
        first(&watching.out, |line| line.contains("KIND"));
    }
}

#[test]
fn an_outage_is_told_and_outlasted() {
    let cluster = Cluster::start().expect("a server");
    let place = Place::at("outage", cluster.url());
    assert_eq!(place.venturi(&["migrate"]).code, 0);
    let programs = Watching::start(&place, &["--json"]);
    let people = Watching::start(&place, &[]);
    first(&programs.out, |line| line.contains("\"kinds\":[]"));
    first(&people.out, |line| line.contains("KIND"));
    cluster.stop_fast().expect("it stops");
    for watching in [&programs, &people] {
        first(&watching.err, |line| line.starts_with("venturi: "));
    }
    cluster.restart().expect("it starts again");
    assert_eq!(place.venturi(&["enqueue", "mail"]).code, 0);
    first(&programs.out, |line| line.contains("\"mail\""));
    first(&people.out, |line| line.contains("mail"));
}

#[test]
fn what_no_waiting_mends_ends_it() {
    let place = Place::new("ended");
    let mut watching = Watching::start(&place, &["--json"]);
    first(&watching.out, |line| line.contains("\"kinds\""));
    place.run("DROP SCHEMA {schema} CASCADE");
    first(&watching.err, |line| line.contains("`migrate`"));
    assert_eq!(watching.child.wait().expect("it ends").code(), Some(1));
}
