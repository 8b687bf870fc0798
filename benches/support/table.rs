//! The figures, for people and for programs.

use std::io::{self, Write};
use std::thread;

use serde_json::{Value, json};

use super::Result;
use super::fronts::PAYLOAD;
use super::meter::Measured;
use super::settings::{Case, Settings};

pub(crate) struct Table<'a> {
    settings: &'a Settings,
    server: Vec<(&'static str, String)>,
    /// In the order of measuring.
    runs: Vec<(Case, Measured)>,
}

/// Medians over the rounds.
struct Line {
    case: Case,
    jobs: usize,
    median: Measured,
    ratio: f64,
}

impl<'a> Table<'a> {
    pub(crate) fn new(settings: &'a Settings, server: Vec<(&'static str, String)>) -> Self {
        Self { settings, server, runs: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: Case, measured: Measured) {
        self.runs.push((case, measured));
    }

    pub(crate) fn print_head(&self) -> Result<()> {
        let mut out = io::stdout().lock();
        for (name, value) in &self.server {
            write!(out, "{name} = {value}, ")?;
        }
        Ok(writeln!(out, "cores = {}, payload = {PAYLOAD} bytes", cores())?)
    }

    pub(crate) fn print(&self) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{:>5} {:>5} {:<10} {:>6} {:>8} {:>6} {:>11} {:>9} {:>10} {:>10} {:>8} {:>7}",
            "n",
            "conns",
            "who",
            "jobs",
            "jobs/s",
            "ratio",
            "commits/job",
            "WAL B/job",
            "client µs",
            "server µs",
            "start ms",
            "stop ms"
        )?;
        let lines = self.lines();
        for Line { case, jobs, median, ratio } in &lines {
            let micros = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"));
            // A filter may leave the reference out.
            let ratio = if ratio.is_nan() { "-".to_owned() } else { format!("{ratio:.2}") };
            writeln!(
                out,
                "{:>5} {:>5} {:<10} {jobs:>6} {:>8.0} {ratio:>6} {:>11.4} {:>9.0} {:>10} {:>10} {:>8.1} {:>7.1}",
                case.concurrency,
                case.connections,
                case.who.name(),
                median.jobs_per_second,
                median.commits,
                median.wal_bytes,
                micros(median.client_us),
                micros(median.server_us),
                median.start_ms,
                median.stop_ms,
            )?;
        }
        Ok(writeln!(out, "{}", self.json(&lines))?)
    }

    fn json(&self, lines: &[Line]) -> Value {
        let cases: Vec<Value> = lines.iter().map(Line::json).collect();
        let server: serde_json::Map<String, Value> =
            self.server.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let rounds = lines.first().map_or(0, |line| self.of(line.case).count());
        json!({
            "bench": "throughput", "cores": cores(), "payload_bytes": PAYLOAD, "rounds": rounds, "server": server,
            "cases": cases,
        })
    }

    fn lines(&self) -> Vec<Line> {
        self.settings
            .cases()
            .filter(|case| self.of(*case).next().is_some())
            .map(|case| Line {
                case,
                jobs: self.settings.jobs(case),
                median: median_of(self.of(case)),
                ratio: median(self.of(case).zip(self.of(case.reference())).map(ratio)),
            })
            .collect()
    }

    fn of(&self, case: Case) -> impl Iterator<Item = &Measured> {
        self.runs.iter().filter(move |(of, _)| *of == case).map(|(_, measured)| measured)
    }
}

impl Line {
    fn json(&self) -> Value {
        let Self { case, jobs, median, ratio } = self;
        json!({
            "who": case.who.name(), "concurrency": case.concurrency, "connections": case.connections, "jobs": jobs,
            "jobs_per_second": rounded(median.jobs_per_second), "ratio": rounded(*ratio),
            "commits_per_job": rounded(median.commits), "wal_bytes_per_job": rounded(median.wal_bytes),
            "client_us_per_job": median.client_us.map(rounded), "server_us_per_job": median.server_us.map(rounded),
            "start_ms": rounded(median.start_ms), "stop_ms": rounded(median.stop_ms),
        })
    }
}

/// Within one round.
fn ratio((measured, reference): (&Measured, &Measured)) -> f64 {
    measured.jobs_per_second / reference.jobs_per_second
}

/// Of each figure for itself.
fn median_of<'a>(runs: impl Iterator<Item = &'a Measured>) -> Measured {
    let runs: Vec<&Measured> = runs.collect();
    let of = |figure: fn(&Measured) -> f64| median(runs.iter().map(|run| figure(run)));
    let of_known = |figure: fn(&Measured) -> Option<f64>| {
        let known: Option<Vec<f64>> = runs.iter().map(|run| figure(run)).collect();
        known.map(|known| median(known.into_iter()))
    };
    Measured {
        jobs_per_second: of(|run| run.jobs_per_second),
        start_ms: of(|run| run.start_ms),
        stop_ms: of(|run| run.stop_ms),
        commits: of(|run| run.commits),
        wal_bytes: of(|run| run.wal_bytes),
        client_us: of_known(|run| run.client_us),
        server_us: of_known(|run| run.server_us),
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}
