//! What the program says at its end.

use std::io::{self, Write};

use venturi::ShutdownReport;

use crate::Result;
use crate::account::Account;
use crate::arguments::Arguments;
use crate::folder::Walk;
use crate::path_text;
use crate::progress::Progress;
use crate::results::Results;
use crate::verify::Findings;

/// How many of a list are shown.
const SHOWN: usize = 10;

pub(crate) struct Summary<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) walk: &'a Walk,
    pub(crate) account: &'a Account<'a>,
    pub(crate) findings: &'a Findings,
    pub(crate) progress: &'a Progress<'a>,
}

impl Summary<'_> {
    pub(crate) fn print(&self) -> Result<()> {
        let (Arguments { front, workers, concurrency, folder, .. }, account) = (self.arguments, self.account);
        let (done, dead) = self.progress.ended();
        let (took, rate) = (self.progress.took(), self.progress.rate());
        let (files, bytes, lines) = (self.walk.files.len(), size(account.bytes()), account.lines());
        print(&format!("{}: {files} files, front-end {}", folder.display(), front.name()))?;
        print(&format!(
            "  jobs        {done} done, {dead} dead in {took:.1?}, {rate:.0} jobs/s, {workers} x {concurrency} at once"
        ))?;
        print(&format!("  rows        {} files have exactly one: {bytes}, {lines} lines", account.digested.len()))?;
        print(&format!("  unchanged   {} files were left out", account.unchanged))?;
        print(&format!("  unreadable  {} files", account.unreadable.len()))?;
        list(account.unreadable.iter().map(|(file, why)| format!("{}: {why}", shown(&file.path))))?;
        self.print_findings()?;
        self.print_problems()
    }

    fn print_findings(&self) -> Result<()> {
        let Findings { agreed, changed, differences } = self.findings;
        let word = if self.arguments.verify_all { "all" } else { "a sample" };
        let but = if *changed > 0 { format!(", {changed} have changed since") } else { String::new() };
        print(&format!(
            "  verified    {agreed} files ({word}) against sha256sum and wc -l: {} differ{but}",
            differences.len()
        ))?;
        list(differences.iter().cloned())
    }

    fn print_problems(&self) -> Result<()> {
        let (folders, missing) = (&self.walk.unreadable, &self.account.missing);
        if !folders.is_empty() {
            print(&format!("  left out    {} folders that cannot be listed", folders.len()))?;
            list(folders.iter().map(|(folder, error)| format!("{}: {error}", folder.display())))?;
        }
        if !missing.is_empty() {
            print(&format!("  WRONG       {} files have neither a row nor a reason", missing.len()))?;
            list(missing.iter().map(|file| shown(&file.path)))?;
        }
        Ok(())
    }
}

pub(crate) fn tell_interrupted(results: &Results) -> Result<()> {
    let counts = results.counts()?;
    let open = counts.pending + counts.claimed;
    eprintln!("digest: interrupted with {open} jobs open; start it again to finish them");
    Ok(())
}

pub(crate) fn tell_left_claimed(reports: &[ShutdownReport]) {
    for left in reports.iter().flat_map(|report| &report.left_claimed) {
        eprintln!("digest: job {} is left claimed until its lease expires ({:?})", left.job, left.reason);
    }
}

/// To the standard output; fails when nobody listens, instead of panicking as `println!` does.
pub(crate) fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

fn list(lines: impl ExactSizeIterator<Item = String>) -> Result<()> {
    let more = lines.len().saturating_sub(SHOWN);
    for line in lines.take(SHOWN) {
        print(&format!("    {line}"))?;
    }
    if more > 0 {
        print(&format!("    and {more} more"))?;
    }
    Ok(())
}

fn shown(path: &str) -> String {
    path_text::decode(path).display().to_string()
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["kB", "MB", "GB"];
    let (mut number, mut unit) = (bytes, "bytes");
    for next in UNITS {
        if number < 10_000 {
            break;
        }
        (number, unit) = (number / 1_000, next);
    }
    format!("{number} {unit}")
}
