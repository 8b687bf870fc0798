//! The figures, for people and for programs.

use std::thread;

use postgres::Client;
use serde_json::{Value, json};

use crate::Result;
use crate::case::{Case, PAYLOAD, Settings, Way};

pub(crate) struct Table<'a> {
    settings: &'a Settings,
    server: serde_json::Map<String, Value>,
    runs: Vec<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    round: usize,
    case: Case,
    way: Way,
    rate: f64,
}

impl<'a> Table<'a> {
    pub(crate) fn new(client: &mut Client, settings: &'a Settings) -> Result<Self> {
        let mut server = serde_json::Map::new();
        for name in ["server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"] {
            let row = client.query_one("SELECT current_setting($1)", &[&name])?;
            server.insert(name.to_owned(), Value::String(row.try_get(0)?));
        }
        Ok(Self { settings, server, runs: Vec::new() })
    }

    pub(crate) fn add(&mut self, round: usize, case: Case, way: Way, rate: f64) {
        self.runs.push(Run { round, case, way, rate });
    }

    pub(crate) fn print(&self) {
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let words: Vec<String> = self.server.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        println!("{}, cores = {cores}, payload = {PAYLOAD} bytes", words.join(", "));
        println!("/INSERT, /COPY: of the rate by hand; /quiet: of the rate without notification; /empty: of that");
        println!("without {} finished jobs. Medians over rounds.", self.settings.finished);
        println!(
            "{:<22} {:<9} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "rows/producers", "who", "rows/s", "/INSERT", "/COPY", "/quiet", "/empty"
        );
        let mut cases = Vec::new();
        for case in self.settings.cases() {
            for way in case.ways() {
                let rate = median(self.of(case, way).map(|run| run.rate));
                let ratios = [
                    ("to_insert", self.ratio(case, way, case, Way::Insert)),
                    ("to_copy", self.ratio(case, way, case, Way::Copy)),
                    ("to_quiet", self.ratio(case, way, Case { notify: false, ..case }, way)),
                    ("to_empty", self.ratio(case, way, Case { history: false, ..case }, way)),
                ];
                let cells: Vec<String> = ratios.iter().map(|(_, ratio)| cell(*ratio)).collect();
                println!("{:<22} {:<9} {rate:>8.0} {}", case.name(), way.name(), cells.join(" "));
                let ratio = |ratio: Option<f64>| json!(ratio.map(|ratio| (ratio * 1e3).round() / 1e3));
                let ratios: serde_json::Map<_, _> =
                    ratios.into_iter().map(|(name, it)| (name.to_owned(), ratio(it))).collect();
                cases.push(json!({
                    "case": case.name(), "who": way.name(), "rows_per_second": rate.round(), "ratios": ratios,
                }));
            }
        }
        let rounds = self.runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
        println!(
            "{}",
            json!({
                "bench": "enqueue", "cores": cores, "payload_bytes": PAYLOAD, "rounds": rounds,
                "finished": self.settings.finished, "server": self.server, "cases": cases,
            })
        );
    }

    fn of(&self, case: Case, way: Way) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.case == case && run.way == way)
    }

    /// The median of the ratios within the rounds; nothing for what is compared with itself.
    fn ratio(&self, case: Case, way: Way, base: Case, by: Way) -> Option<f64> {
        if (case, way) == (base, by) {
            return None;
        }
        let within = |run: &Run| {
            let other = self.of(base, by).find(|other| other.round == run.round)?;
            Some(run.rate / other.rate)
        };
        let ratios: Vec<f64> = self.of(case, way).filter_map(within).collect();
        (!ratios.is_empty()).then(|| median(ratios.into_iter()))
    }
}

fn cell(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| format!("{:>8}", "-"), |ratio| format!("{ratio:>8.2}"))
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}
