//! How long does a job wait from the call that enqueues it to its handler's first line?
//!
//! ```sh
//! cargo bench --features blocking,async --bench latency
//! ```
//!
//! `idle`: one job at a time, on a worker that has nothing else to do. `half load`: `SLOTS` slots, handlers that take
//! `NAP_MS`, and half of the jobs that would keep them all busy, sent by `SOURCES` producers with a connection each, at
//! random moments, whether earlier ones have started or not. `due in 1 s`: how late a job starts that was to wait a
//! second, while the worker's `poll_max` is a minute.
//!
//! The reference is LISTEN and a loop that claims one job, runs it and settles it: one loop for `idle`, which is the
//! best that it can do, and one for each slot at half load. It takes turns with the front-ends within each round;
//! percentiles are over all rounds, and the ratio is the median of the rounds' ratios of p50. The time includes the
//! enqueueing itself, commit and notification, through a queue of the same front-end.
//!
//! Settings: `SAMPLES` (in a round, idle), `SECONDS` (of a round, under load), `SLOTS`, `NAP_MS`, `SOURCES`, `ROUNDS`.
//! The server is private, with `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without
//! `--bench`, which cargo passes, it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "latency/by_hand.rs"]
mod by_hand;
#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "latency/party.rs"]
mod party;
mod support;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use venturi::Submit;

use party::{Party, Sent, Source, Who};
use support::Result;
use support::front::{Front, Lab, Spec, Tick};
use support::numbers::{Spread, median_ratio, milliseconds, rounded};
use support::options::Options;
use support::output::Head;
use support::server::Server;

/// The first jobs find statements that are not prepared yet.
const WARM_UPS: usize = 5;
/// So that the worker is idle again.
const BETWEEN: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    support::exit("latency", run())
}

#[derive(Debug)]
struct Settings {
    samples: usize,
    seconds: usize,
    slots: usize,
    nap_ms: usize,
    sources: usize,
    rounds: usize,
}

fn run() -> Result<()> {
    let settings = Settings::new(&Options::new())?;
    let server = Server::start()?;
    let head = Head::print("latency", &server, settings.json())?;
    let mut series = Series::new();
    for round in 1..=settings.rounds {
        for it in &mut series.cases {
            let waits = match it.load {
                Load::Idle => idle(&server, it.who, &settings)?,
                Load::Half => half_load(&server, it.who, &settings)?,
            };
            it.add(waits);
        }
        eprintln!("round {round} of {} is done", settings.rounds);
    }
    let mut cases = series.print();
    for front in Front::BOTH {
        cases.push(due(&server, front)?);
    }
    head.finish(&cases)
}

impl Settings {
    fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            samples: options.count("SAMPLES", 200, 10)?,
            seconds: options.count("SECONDS", 5, 1)?,
            slots: options.count("SLOTS", 8, 8)?,
            nap_ms: options.count("NAP_MS", 20, 20)?,
            sources: options.count("SOURCES", 4, 4)?,
            rounds: options.count("ROUNDS", 3, 1)?,
        })
    }

    /// Jobs a second that keep half of the slots busy.
    fn half_load(&self) -> f64 {
        self.slots as f64 / (self.nap_ms as f64 / 1e3) / 2.0
    }

    fn json(&self) -> Value {
        json!({
            "samples": self.samples, "seconds": self.seconds, "slots": self.slots, "nap_ms": self.nap_ms,
            "sources": self.sources, "rounds": self.rounds, "half_load_per_second": self.half_load(),
        })
    }
}

fn idle(server: &Server, who: Who, settings: &Settings) -> Result<Vec<Duration>> {
    let party = Party::start(server, who, if who == Who::Reference { 1 } else { settings.slots })?;
    let waits = party.waits(1, 0, |_, source| {
        let mut sent = Vec::new();
        for nth in 1..=WARM_UPS + settings.samples {
            sent.push(source.send(0)?);
            party.wait(nth)?;
            thread::sleep(BETWEEN);
        }
        Ok(sent)
    })?;
    party.stop()?;
    Ok(waits.into_iter().skip(WARM_UPS).collect())
}

fn half_load(server: &Server, who: Who, settings: &Settings) -> Result<Vec<Duration>> {
    let party = Party::start(server, who, settings.slots)?;
    let nap_ms = u64::try_from(settings.nap_ms)?;
    party.waits(1, 0, |_, source| (0..WARM_UPS).map(|_| source.send(nap_ms)).collect())?;
    let gap = settings.sources as f64 / settings.half_load();
    let time = Duration::from_secs(settings.seconds.try_into()?);
    let waits =
        party.waits(settings.sources, WARM_UPS, |nth, source| send_at_random(source, nap_ms, gap, nth, time))?;
    party.stop()?;
    Ok(waits)
}

/// Sends jobs with exponentially distributed times between them, `gap` seconds in the mean. A job's wait begins when it
/// was to be sent, so that a producer which is late does not hide it.
fn send_at_random(source: &mut Source, nap_ms: u64, gap: f64, seed: usize, time: Duration) -> Result<Vec<Sent>> {
    let (began, mut at, mut random, mut sent) = (Instant::now(), Duration::ZERO, Random(seed as u64), Vec::new());
    loop {
        at += Duration::from_secs_f64(-gap * random.fraction().ln());
        if at > time {
            return Ok(sent);
        }
        let due = began + at;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let (job, _) = source.send(nap_ms)?;
        sent.push((job, due));
    }
}

/// The same numbers in every round: splitmix64.
struct Random(u64);

impl Random {
    /// Above 0, up to 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// By how much jobs miss the moment at which they become due.
fn due(server: &Server, front: Front) -> Result<Value> {
    const JOBS: usize = 5;
    const DELAY: Duration = Duration::from_secs(1);
    let (database, lab) = (server.queue("latency_due")?, Lab::new());
    let running = front.start(&database, &lab, Spec::default())?;
    let queue = front.queue(&database)?;
    let mut late = Spread::default();
    for nth in 1..=JOBS {
        let before = Instant::now();
        queue.enqueue(Submit::from(Tick::default()).delay(DELAY))?;
        let starts = lab.wait_starts(nth)?;
        late.extend(starts.last().map(|start| (start.at - before).saturating_sub(DELAY)));
    }
    running.stop()?;
    println!("due in 1 s, {}: late by {:.1?} to {:.1?}", front.name(), late.percentile(1), late.percentile(100));
    Ok(json!({ "who": front.name(), "load": "due in 1 s", "late": late.json() }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Idle,
    Half,
}

struct Case {
    load: Load,
    who: Who,
    all: Spread,
    /// Milliseconds: the p50 of each round.
    rounds: Vec<f64>,
}

struct Series {
    cases: Vec<Case>,
}

impl Case {
    fn add(&mut self, waits: Vec<Duration>) {
        let mut round = Spread::default();
        round.extend(waits.iter().copied());
        self.rounds.push(milliseconds(round.percentile(50)));
        self.all.extend(waits);
    }

    fn load_name(&self) -> &'static str {
        match self.load {
            Load::Idle => "idle",
            Load::Half => "half load",
        }
    }
}

impl Series {
    fn new() -> Self {
        let case = |load, who| Case { load, who, all: Spread::default(), rounds: Vec::new() };
        let of = |load| Who::ALL.map(|who| case(load, who));
        Self { cases: [Load::Idle, Load::Half].into_iter().flat_map(of).collect() }
    }

    /// Prints the figures, and answers them in JSON.
    fn print(&self) -> Vec<Value> {
        println!(
            "{:<10} {:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
            "load", "who", "samples", "p50 ms", "p95 ms", "p99 ms", "max ms", ":reference"
        );
        println!("(*: with durable_claims(false))");
        let print = |case: &Case| {
            let (load, who, ratio) = (case.load_name(), case.who.name(), self.ratio(case));
            let [p50, p95, p99, max] = [50, 95, 99, 100].map(|part| milliseconds(case.all.percentile(part)));
            println!(
                "{load:<10} {who:<10} {:>8} {p50:>8.2} {p95:>8.2} {p99:>8.2} {max:>8.2} {ratio:>10.2}",
                case.all.len()
            );
            json!({ "who": who, "load": load, "wait": case.all.json(), "ratio_p50": rounded(ratio) })
        };
        self.cases.iter().map(print).collect()
    }

    fn ratio(&self, case: &Case) -> f64 {
        let reference = self.cases.iter().find(|it| it.load == case.load && it.who == Who::Reference);
        let theirs = reference.into_iter().flat_map(|it| &it.rounds);
        median_ratio(&case.rounds, theirs)
    }
}
