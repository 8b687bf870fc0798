//! What does looking for work cost, whatever else lies in the tables?
//!
//! ```sh
//! cargo bench --features blocking,async --bench claim
//! FINISHED=10000000 cargo bench --features blocking,async --bench claim
//! cargo bench --features blocking,async --bench claim -- dead
//! ```
//!
//! The library's own statements, prepared on a connection with its settings, with the parameters that the engine
//! sends, which are the same in both front-ends; each in a transaction that is rolled back, and timed without its
//! beginning and its end. What they are compared with, in turns within the same round, is the same statement in the
//! situation `small`.
//!
//! | situation | what is in the tables |
//! |---|---|
//! | `empty` | nothing |
//! | `small` | 1,000 ready jobs of the one registered kind, which are also there in the others, if not said otherwise |
//! | `foreign` | `ROWS` older ready jobs of fifty other kinds |
//! | `scheduled` | `ROWS` jobs of the registered kind that are not due yet |
//! | `finished` | `FINISHED` finished jobs |
//! | `own` | `ROWS` ready jobs of the registered kind |
//! | `kinds_idle` | 100 registered kinds, one of which has jobs |
//! | `kinds_busy` | 100 registered kinds with 100 jobs each |
//! | `dead` | `DEAD` jobs that were promoted, claimed and finished while another session holds an older snapshot |
//! | `dead_only` | the same without anything to claim |
//!
//! `claim_from` is what the engine sends while dead index entries make a full look slow, with the marks that it would
//! have. `stale` and `promote` look back as far as the last pass; `stale all` and `promote all` without bound, as they
//! do once in 30 seconds. Settings: `ROWS`, `FINISHED`, `DEAD`, `ROUNDS`, `TIMES` (a round's measurements of each), and
//! part of the name of the situation that is wanted beside the one it is compared with. The server is private, with
//! `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without `--bench`, which cargo passes,
//! it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "claim/probes.rs"]
mod probes;
#[path = "claim/situations.rs"]
mod situations;
mod support;

use std::process::ExitCode;
use std::time::Instant;

use postgres::Client;
use serde_json::{Value, json};

use probes::{Prepared, Probe};
use situations::{Situation, Sizes};
use support::numbers::{median, median_ratio, microseconds, rounded};
use support::options::Options;
use support::output::Head;
use support::server::Server;
use support::{Result, session};

/// Of each statement in each round, before it is timed.
const WARM_UPS: usize = 2;

fn main() -> ExitCode {
    support::exit("claim", run())
}

fn run() -> Result<()> {
    let options = Options::new();
    let (sizes, rounds, times) =
        (Sizes::new(&options)?, options.count("ROUNDS", 5, 1)?, options.count("TIMES", 20, 3)?);
    let server = Server::start()?;
    let settings = json!({
        "rows": sizes.rows, "finished": sizes.finished, "dead": sizes.dead, "backlog": sizes.backlog,
        "rounds": rounds, "times": times,
    });
    let head = Head::print("claim", &server, settings)?;
    let wanted = |it: &&Situation| it.name == Situation::BASELINE || it.name.contains(&options.filter);
    let situations: Vec<&Situation> = Situation::ALL.iter().filter(wanted).collect();
    let mut pin = server.connect()?;
    fill(&server, &situations, &sizes, &mut pin)?;
    let mut series = Series::prepare(&server, &situations)?;
    for round in 1..=rounds {
        let began = Instant::now();
        series.measure(times)?;
        eprintln!("round {round} of {rounds}: {:.1?}", began.elapsed());
    }
    drop(pin);
    head.finish(&series.print())
}

/// Fills the tables; `pin` then holds a snapshot in which the dead rows live.
fn fill(server: &Server, situations: &[&Situation], sizes: &Sizes, pin: &mut Client) -> Result<()> {
    for situation in situations {
        let began = Instant::now();
        situation.prepare(server, sizes)?;
        eprintln!("{} filled: {:.1?}", situation.name, began.elapsed());
    }
    pin.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")?;
    for situation in situations.iter().filter(|situation| situation.is_pinned()) {
        situation.bury(server, sizes)?;
    }
    Ok(())
}

/// One statement in one situation.
struct Case<'a> {
    situation: &'a Situation,
    probe: Probe,
    prepared: Prepared,
    /// Microseconds: the median of each round.
    rounds: Vec<f64>,
}

/// All statements in all situations, on one connection.
struct Series<'a> {
    client: Client,
    cases: Vec<Case<'a>>,
}

impl<'a> Series<'a> {
    fn prepare(server: &Server, situations: &[&'a Situation]) -> Result<Self> {
        let mut client = session::open(server)?;
        let mut cases = Vec::new();
        for probe in Probe::ALL {
            for situation in situations {
                let prepared = Prepared::new(&mut client, probe, situation)?;
                cases.push(Case { situation, probe, prepared, rounds: Vec::new() });
            }
        }
        Ok(Self { client, cases })
    }

    fn measure(&mut self, times: usize) -> Result<()> {
        for case in &mut self.cases {
            let round = case.measure(&mut self.client, times)?;
            case.rounds.push(round);
        }
        Ok(())
    }

    /// Prints the figures, and answers them in JSON.
    fn print(&self) -> Vec<Value> {
        println!("{:<13} {:<12} {:>9} {:>9} {:>9} {:>7}", "statement", "situation", "µs", "least", "most", ":small");
        let print = |case: &Case<'_>| {
            let (name, ratio) = (case.probe.name(), self.ratio(case));
            let (middle, least, most) = case.figures();
            let situation = case.situation.name;
            println!("{name:<13} {situation:<12} {middle:>9.0} {least:>9.0} {most:>9.0} {ratio:>7.2}");
            json!({
                "statement": name, "situation": situation, "us": rounded(middle), "least_us": rounded(least),
                "most_us": rounded(most), "ratio": rounded(ratio),
            })
        };
        self.cases.iter().map(print).collect()
    }

    fn ratio(&self, case: &Case<'_>) -> f64 {
        let same = |it: &&Case<'_>| it.probe == case.probe && it.situation.name == Situation::BASELINE;
        let theirs = self.cases.iter().find(same).into_iter().flat_map(|it| &it.rounds);
        median_ratio(&case.rounds, theirs)
    }
}

impl Case<'_> {
    fn measure(&self, client: &mut Client, times: usize) -> Result<f64> {
        let mut figures = Vec::new();
        for nth in 0..WARM_UPS + times {
            client.batch_execute("BEGIN")?;
            let began = Instant::now();
            let done = self.prepared.run(client);
            let took = began.elapsed();
            client.batch_execute("ROLLBACK")?;
            done.map_err(|error| format!("{} in {}: {error}", self.probe.name(), self.situation.name))?;
            if nth >= WARM_UPS {
                figures.push(microseconds(took));
            }
        }
        Ok(median(figures))
    }

    fn figures(&self) -> (f64, f64, f64) {
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(0.0, f64::max);
        (median(self.rounds.iter().copied()), least, most)
    }
}
