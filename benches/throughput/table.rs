//! The figures, for people and for programs.

use serde_json::{Value, json};

use super::cases::{Case, Settings};
use super::measured::Measured;
use crate::support::numbers::{cell, median, rounded};

pub(crate) struct Table<'a> {
    settings: &'a Settings,
    /// In the order of measuring.
    runs: Vec<(Case, Measured)>,
}

/// Medians over the rounds.
struct Line {
    case: Case,
    jobs: usize,
    rounds: usize,
    median: Measured,
    slowest: f64,
    fastest: f64,
    /// To the reference with as many jobs at once and as many connections.
    to_same: f64,
    to_single: f64,
    to_batched: f64,
}

impl<'a> Table<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Self { settings, runs: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: Case, measured: Measured) {
        self.runs.push((case, measured));
    }

    /// Prints the table, and answers the lines in JSON.
    pub(crate) fn print(&self) -> Vec<Value> {
        println!("{HEADS}");
        let lines = self.settings.cases().into_iter().filter_map(|case| self.line(case));
        let print = |line: Line| {
            line.print();
            line.json()
        };
        lines.map(print).collect()
    }

    fn line(&self, case: Case) -> Option<Line> {
        let runs = self.of(case);
        let rates = || runs.iter().map(|run| run.jobs_per_second);
        Some(Line {
            case,
            jobs: self.settings.jobs(case),
            rounds: runs.len(),
            median: Measured::median_of(runs.first().map(|_| runs.as_slice())?),
            slowest: rates().fold(f64::INFINITY, f64::min),
            fastest: rates().fold(0.0, f64::max),
            to_same: self.ratio(case, case.same()),
            to_single: self.ratio(case, Case::SINGLE),
            to_batched: self.ratio(case, Case::BATCHED),
        })
    }

    fn of(&self, case: Case) -> Vec<Measured> {
        self.runs.iter().filter(|(of, _)| *of == case).map(|(_, measured)| *measured).collect()
    }

    /// The median of the ratios within each round.
    fn ratio(&self, case: Case, to: Case) -> f64 {
        let (ours, theirs) = (self.of(case), self.of(to));
        median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours.jobs_per_second / theirs.jobs_per_second))
    }
}

const HEADS: &str = "   \
    n conns each who          jobs   jobs/s (slowest-fastest)   :same :single :batched commits/job WAL B/job \
client µs server µs start ms stop ms MB warm MB end";

impl Line {
    fn print(&self) {
        let Self { case, jobs, median, .. } = self;
        let ratio = |figure| cell(Some(figure), 2);
        println!(
            "{:>5} {:>5} {:>4} {:<9} {jobs:>7} {:>8.0} {:>17} {:>7} {:>7} {:>8} {:>11.4} {:>9.0} {:>9} {:>9} {:>8.1} {:>7.1} \
             {:>7} {:>6}",
            case.concurrency,
            case.count,
            case.each,
            case.who.name(),
            median.jobs_per_second,
            format!("({:.0}-{:.0})", self.slowest, self.fastest),
            ratio(self.to_same),
            ratio(self.to_single),
            ratio(self.to_batched),
            median.commits_per_job,
            median.wal_bytes_per_job,
            cell(median.client_us_per_job, 1),
            cell(median.server_us_per_job, 1),
            median.start_ms,
            median.stop_ms,
            cell(median.warm_mb, 1),
            cell(median.end_mb, 1),
        );
    }

    fn json(&self) -> Value {
        let Self { case, jobs, median, .. } = self;
        json!({
            "who": case.who.name(), "concurrency": case.concurrency, "connections": case.count, "each": case.each,
            "processes": case.processes(), "jobs": jobs, "rounds": self.rounds, "jobs_per_second": rounded(median.jobs_per_second),
            "slowest": rounded(self.slowest), "fastest": rounded(self.fastest),
            "ratio_same": rounded(self.to_same), "ratio_single": rounded(self.to_single),
            "ratio_batched": rounded(self.to_batched), "commits_per_job": rounded(median.commits_per_job),
            "wal_bytes_per_job": rounded(median.wal_bytes_per_job),
            "client_us_per_job": median.client_us_per_job.map(rounded),
            "server_us_per_job": median.server_us_per_job.map(rounded),
            "start_ms": rounded(median.start_ms), "stop_ms": rounded(median.stop_ms),
            "warm_mb": median.warm_mb.map(rounded), "end_mb": median.end_mb.map(rounded),
        })
    }
}
