//! A second opinion: `sha256sum` and `wc -l`, which share no code with us.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::Result;
use crate::account::Account;
use crate::content::{Digest, modified};
use crate::folder::Found;
use crate::path_text;

const SAMPLE: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) agreed: usize,
    /// Changed, or gone, since it was digested: nothing to compare.
    pub(crate) changed: usize,
    /// One line for each file that the tools see differently.
    pub(crate) differences: Vec<String>,
}

impl Findings {
    pub(crate) fn all_agree(&self) -> bool {
        self.differences.is_empty()
    }

    fn add(&mut self, found: Finding) {
        match found {
            Finding::Agreed => self.agreed += 1,
            Finding::Changed => self.changed += 1,
            Finding::Differs(line) => self.differences.push(line),
        }
    }
}

enum Finding {
    Agreed,
    Changed,
    Differs(String),
}

/// Compares a random sample or all, the unreadable included: what we could not read, the tools must not be able to.
pub(crate) fn compare(account: &Account<'_>, all: bool) -> Result<Findings> {
    let at_most = if all { usize::MAX } else { SAMPLE };
    let digested = sample(&account.digested, at_most);
    let unreadable = sample(&account.unreadable, at_most);
    let mut findings = Findings::default();
    for found in on_all_cores(&digested, |(file, digest)| compare_one(file, digest))? {
        findings.add(found);
    }
    for found in on_all_cores(&unreadable, |(file, reason)| confirm_unreadable(file, reason))? {
        findings.add(found);
    }
    Ok(findings)
}

/// Random, because a hasher's keys are.
fn sample<'a, 'b, T>(items: &'b [(&'a Found, T)], at_most: usize) -> Vec<&'b (&'a Found, T)> {
    let random = RandomState::new();
    let mut sample: Vec<_> = items.iter().collect();
    if sample.len() > at_most {
        sample.sort_by_cached_key(|(file, _)| random.hash_one(&file.path));
        sample.truncate(at_most);
    }
    sample
}

/// Two processes are started for each file, and that is where the time goes.
fn on_all_cores<T: Sync>(items: &[T], look: impl Fn(&T) -> Result<Finding> + Sync) -> Result<Vec<Finding>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(cores).max(1);
    thread::scope(|scope| {
        let look = &look;
        let shares: Vec<_> =
            items.chunks(share).map(|share| scope.spawn(move || share.iter().map(look).collect())).collect();
        let mut findings = Vec::with_capacity(items.len());
        for share in shares {
            let share: Result<Vec<Finding>> = share.join().map_err(|_| "a thread that verifies panicked")?;
            findings.extend(share?);
        }
        Ok(findings)
    })
}

fn compare_one(file: &Found, stored: &Digest) -> Result<Finding> {
    let path = path_text::decode(&file.path);
    // The tools read from an open file: no name has to get through a command line, nor through their output.
    let (Ok(for_sha256sum), Ok(for_wc)) = (File::open(&path), File::open(&path)) else {
        return Ok(Finding::Changed);
    };
    let sha256 = first_word(Command::new("sha256sum").stdin(for_sha256sum))?;
    let lines = first_word(Command::new("wc").arg("-l").stdin(for_wc))?;
    // Last: a change while the tools read counts as one.
    if !is_still_as_digested(&path, stored) {
        return Ok(Finding::Changed);
    }
    let (our_sha256, our_lines) = (hexadecimal(&stored.sha256), stored.lines.to_string());
    if (&sha256, &lines) == (&our_sha256, &our_lines) {
        return Ok(Finding::Agreed);
    }
    let path = path.display();
    Ok(Finding::Differs(format!("{path}: {our_sha256}, {our_lines} lines; the tools say {sha256}, {lines} lines")))
}

fn is_still_as_digested(path: &Path, stored: &Digest) -> bool {
    fs::symlink_metadata(path).is_ok_and(|now| now.len() == stored.size && modified(&now) == stored.mtime)
}

fn confirm_unreadable(file: &Found, reason: &str) -> Result<Finding> {
    let path = path_text::decode(&file.path);
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.arg("--").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = sha256sum.status().map_err(|error| cannot_run(&sha256sum, &error))?;
    if !status.success() {
        return Ok(Finding::Agreed);
    }
    Ok(Finding::Differs(format!("{}: sha256sum can read it, but our job is dead: {reason}", path.display())))
}

fn first_word(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_run(command, &error))?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", command.get_program().to_string_lossy(), output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

fn cannot_run(command: &Command, error: &io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => format!("{program} is needed to verify the results, and was not found"),
        _ => format!("cannot run {program}: {error}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
