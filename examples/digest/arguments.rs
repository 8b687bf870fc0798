//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use crate::front::Front;

pub(crate) const USAGE: &str = "\
usage: digest --front blocking|async [OPTIONS] [FOLDER]

Digests every regular file below FOLDER, one job per file, and verifies the results.
DATABASE_URL names the PostgreSQL database.

  --front blocking|async  which front-end enqueues and works
  --workers N             how many workers run in this process (default 1; 0 only enqueues)
  --concurrency N         how many files each of them digests at once (default 8)
  --schema NAME           the queue's schema; results go to NAME_results (default digest)
  --verify-all            compare every file with sha256sum and wc, not only a random sample of 200
  --help                  show this text

FOLDER defaults to the documentation of the Rust toolchain, or else to /usr/share.

The exit code is 0 when every file has exactly one row (or a reason why it cannot be read) and
every comparison agrees, 1 when not, 2 for a wrong command line, and 130 after Ctrl-C or SIGTERM.";

/// What an ordinary database can bear without raising its `max_connections`.
const MAX_WORKERS: usize = 16;
const MAX_CONCURRENCY: usize = 64;

pub(crate) enum Request {
    Run(Arguments),
    Help,
}

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) front: Front,
    pub(crate) workers: usize,
    pub(crate) concurrency: usize,
    pub(crate) schema: String,
    pub(crate) verify_all: bool,
    pub(crate) folder: PathBuf,
}

impl Arguments {
    pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Request, String> {
        let mut words = words;
        let (mut front, mut folder) = (None, None);
        let (mut workers, mut concurrency, mut schema, mut verify_all) = (1, 8, "digest".to_owned(), false);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--help" | "-h") => return Ok(Request::Help),
                Some("--front") => front = Some(text("--front", words.next())?.parse()?),
                Some("--workers") => workers = number("--workers", words.next(), 0, MAX_WORKERS)?,
                Some("--concurrency") => concurrency = number("--concurrency", words.next(), 1, MAX_CONCURRENCY)?,
                Some("--schema") => schema = text("--schema", words.next())?,
                Some("--verify-all") => verify_all = true,
                Some(option) if option.starts_with('-') => return Err(format!("there is no option {option}")),
                _ if folder.is_some() => return Err(format!("more than one folder: {}", word.to_string_lossy())),
                _ => folder = Some(PathBuf::from(word)),
            }
        }
        let front = front.ok_or("--front blocking or --front async is needed")?;
        let folder = folder.unwrap_or_else(default_folder);
        Ok(Request::Run(Self { front, workers, concurrency, schema, verify_all, folder }))
    }
}

fn text(option: &str, value: Option<OsString>) -> Result<String, String> {
    let value = value.ok_or_else(|| format!("{option} needs a value"))?;
    value.into_string().map_err(|value| format!("{option} {} is not UTF-8", value.to_string_lossy()))
}

fn number(option: &str, value: Option<OsString>, least: usize, most: usize) -> Result<usize, String> {
    let value = text(option, value)?;
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option} takes a number from {least} to {most}, not {value:?}"))
}

/// Some ten thousand files that every Rust developer has.
fn default_folder() -> PathBuf {
    toolchain_docs().filter(|folder| folder.is_dir()).unwrap_or_else(|| "/usr/share".into())
}

fn toolchain_docs() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let sysroot = OsStr::new(sysroot.trim_end());
    (output.status.success() && !sysroot.is_empty()).then(|| PathBuf::from(sysroot).join("share/doc"))
}
