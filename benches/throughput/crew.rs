//! The processes of one drain: the bench's end of the conversation with them.

use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::cases::Case;
use super::drain::Account;
use crate::cluster::URL_VARIABLE;
use crate::support::Result;
use crate::support::server::Server;

/// Without a single job in hand for so long, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program again, as a process that drains. Killed if it is dropped before it has ended.
struct Member {
    child: Child,
    /// Its end is the word to stop.
    input: Option<ChildStdin>,
}

/// What a member said: its number, and its line.
type Word = (usize, String);

/// Has a case's jobs drained by as many processes as it wants.
pub(crate) fn drain(server: &Server, case: Case, jobs: usize) -> Result<Vec<Account>> {
    let (sender, words) = channel();
    let mut crew = Vec::new();
    for nth in 0..case.processes() {
        let (member, lines) = Member::start(server, case, jobs)?;
        listen(nth, lines, sender.clone());
        crew.push(member);
    }
    drop(sender);
    wait(&words, &mut vec![0; crew.len()], crew.len(), |line| usize::from(line == "ready"))?;
    for member in &mut crew {
        member.say("go")?;
    }
    let mut counts = vec![0; crew.len()];
    wait(&words, &mut counts, jobs, |line| line.parse().unwrap_or_default())?;
    crew.iter_mut().for_each(|member| drop(member.input.take()));
    accounts(&words, crew.len())
}

/// Until what the members have last said sums up to `all`.
fn wait(words: &Receiver<Word>, said: &mut [usize], all: usize, mean: impl Fn(&str) -> usize) -> Result<()> {
    while said.iter().sum::<usize>() < all {
        let (nth, line) = next(words)?.ok_or("a process that drains has ended too early")?;
        if let Some(last) = said.get_mut(nth) {
            *last = mean(&line).max(*last);
        }
    }
    Ok(())
}

fn accounts(words: &Receiver<Word>, count: usize) -> Result<Vec<Account>> {
    let mut accounts = Vec::new();
    while let Some((_, line)) = next(words)? {
        if line.starts_with('{') {
            accounts.push(serde_json::from_str(&line)?);
        }
    }
    if accounts.len() == count { Ok(accounts) } else { Err("a process that drains has failed".into()) }
}

/// `None` when all have ended.
fn next(words: &Receiver<Word>) -> Result<Option<Word>> {
    match words.recv_timeout(PATIENCE) {
        Ok(word) => Ok(Some(word)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => Err(format!("no job was done for {PATIENCE:?}").into()),
    }
}

fn listen(nth: usize, lines: Lines<BufReader<ChildStdout>>, words: Sender<Word>) {
    thread::spawn(move || lines.map_while(|line| line.ok()).try_for_each(|line| words.send((nth, line))));
}

impl Member {
    fn start(server: &Server, case: Case, jobs: usize) -> Result<(Self, Lines<BufReader<ChildStdout>>)> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--drain", case.who.name()])
            .args([case.concurrency, case.count, case.each, jobs / case.processes()].map(|number| number.to_string()))
            .env(URL_VARIABLE, &server.dsn)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        Ok((Self { child, input }, BufReader::new(output).lines()))
    }

    fn say(&mut self, word: &str) -> Result<()> {
        Ok(writeln!(self.input.as_mut().ok_or("already told to stop")?, "{word}")?)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
