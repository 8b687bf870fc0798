//! The figures, for people and for programs.

use serde_json::{Value, json};

use crate::case::{Case, Settings, Way};
use crate::support::numbers::{cell, median, rounded};

pub(crate) struct Table<'a> {
    settings: &'a Settings,
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
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Self { settings, runs: Vec::new() }
    }

    pub(crate) fn add(&mut self, round: usize, case: Case, way: Way, rate: f64) {
        self.runs.push(Run { round, case, way, rate });
    }

    /// Prints the figures, and answers them in JSON.
    pub(crate) fn print(&self) -> Vec<Value> {
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
                let cells: Vec<String> = ratios.iter().map(|(_, ratio)| format!("{:>8}", cell(*ratio, 2))).collect();
                println!("{:<22} {:<9} {rate:>8.0} {}", case.name(), way.name(), cells.join(" "));
                let ratios: serde_json::Map<_, _> =
                    ratios.into_iter().map(|(name, it)| (name.to_owned(), json!(it.map(rounded)))).collect();
                cases.push(json!({
                    "case": case.name(), "who": way.name(), "rows_per_second": rate.round(), "ratios": ratios,
                    "rounds": self.of(case, way).count(),
                }));
            }
        }
        cases
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
        (!ratios.is_empty()).then(|| median(ratios))
    }
}
