//! What does a worker cost that has nothing to do?
//!
//! ```sh
//! cargo bench --features blocking,async --bench idle
//! ```
//!
//! `alone`: commits for each `poll_max` of a worker whose queue is empty, and its CPU time. `foreign traffic`: all
//! commits of the server, producer included, for `FOREIGN` jobs of a kind that none of `WORKERS` listening workers
//! runs, enqueued one by one. A session keeps its counters to itself for a while, so commits are those of two whole
//! lives, from the first connection to the last one's end, one of them longer, or with the jobs: their difference is
//! what is told.
//!
//! `enqueueing`: jobs a second, of that kind too, of `PRODUCERS` queues with a connection each, with and without these
//! workers, in turns; and as a reference the same rows by INSERT on as many connections, without a notification.
//!
//! Settings: `POLLS` (periods of `poll_max`), `POLL_MAX_MS`, `WORKERS`, `FOREIGN`, `PRODUCERS`, `JOBS`, `ROUNDS`. The
//! server is private, with `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without
//! `--bench`, which cargo passes, it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "../tests/cluster/mod.rs"]
mod cluster;
mod support;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use venturi::Database;

use support::front::{Foreign, Front, Lab, Running, Spec};
use support::meter::Meter;
use support::numbers::{cell, median, median_ratio, rounded};
use support::options::Options;
use support::output::Head;
use support::reference::{self, Reference};
use support::server::Server;
use support::{Result, at_once, process};

const SCHEMA: &str = "idle";
/// Long enough for a worker to have looked at everything once.
const SETTLED: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    support::exit("idle", run())
}

#[derive(Debug)]
struct Settings {
    polls: usize,
    poll_max: Duration,
    workers: usize,
    foreign: usize,
    producers: usize,
    jobs: usize,
    rounds: usize,
}

fn run() -> Result<()> {
    let settings = Settings::new(&Options::new())?;
    let server = Server::start()?;
    let head = Head::print("idle", &server, settings.json())?;
    let bench = Bench { meter: Meter::new(&server)?, server: &server, settings: &settings };
    head.finish(&bench.run()?)
}

impl Settings {
    fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            polls: options.count("POLLS", 10, 2)?,
            poll_max: Duration::from_millis(options.count("POLL_MAX_MS", 500, 100)?.try_into()?),
            workers: options.count("WORKERS", 10, 2)?,
            foreign: options.count("FOREIGN", 20, 3)?,
            producers: options.count("PRODUCERS", 8, 2)?,
            jobs: options.count("JOBS", 4_000, 50)?,
            rounds: options.count("ROUNDS", 5, 1)?,
        })
    }

    fn json(&self) -> Value {
        json!({
            "polls": self.polls, "poll_max_ms": u64::try_from(self.poll_max.as_millis()).ok(), "workers": self.workers,
            "foreign": self.foreign, "producers": self.producers, "jobs": self.jobs, "rounds": self.rounds,
        })
    }

    /// That looks so seldom that what it does is for the traffic's sake.
    fn listening(&self) -> Spec {
        Spec { poll_max: Duration::from_secs(60), ..Spec::default() }
    }
}

struct Bench<'a> {
    meter: Meter,
    server: &'a Server,
    settings: &'a Settings,
}

impl Bench<'_> {
    fn run(mut self) -> Result<Vec<Value>> {
        let mut cases = Vec::new();
        for front in Front::BOTH {
            cases.push(self.alone(front)?);
            cases.push(self.foreign_traffic(front)?);
        }
        cases.extend(self.enqueueing()?);
        Ok(cases)
    }

    fn alone(&mut self, front: Front) -> Result<Value> {
        let Settings { polls, poll_max, .. } = *self.settings;
        let period = poll_max * u32::try_from(polls)?;
        let mut cpu = Duration::ZERO;
        let spec = Spec { poll_max, ..Spec::default() };
        let short = self.life(front, 1, spec, |_| Ok(()))?;
        let long = self.life(front, 1, spec, |_| {
            let before = process::time_of_threads();
            thread::sleep(period);
            cpu = process::time_of_threads().zip(before).map_or(cpu, |(now, then)| now.saturating_sub(then));
            Ok(())
        })?;
        let commits = (long - short) as f64 / polls as f64;
        let cpu_us = cpu.as_secs_f64() * 1e6 / polls as f64;
        println!("alone, {}: {commits:.1} commits and {cpu_us:.0} µs of CPU a poll_max", front.name());
        Ok(json!({
            "case": "alone", "who": front.name(), "commits_per_poll_max": rounded(commits),
            "cpu_us_per_poll_max": rounded(cpu_us),
        }))
    }

    fn foreign_traffic(&mut self, front: Front) -> Result<Value> {
        let Settings { workers, foreign, .. } = *self.settings;
        let time = Duration::from_millis(50);
        let listening = self.settings.listening();
        let quiet = self.life(front, workers, listening, |database| {
            let _queue = front.queue(database)?;
            thread::sleep(time * u32::try_from(foreign)? + SETTLED);
            Ok(())
        })?;
        let busy = self.life(front, workers, listening, |database| {
            let queue = front.queue(database)?;
            for _ in 0..foreign {
                queue.enqueue(Foreign)?;
                thread::sleep(time);
            }
            thread::sleep(SETTLED);
            Ok(())
        })?;
        let commits = busy - quiet;
        println!(
            "foreign traffic, {}: {foreign} jobs beside {workers} idle workers cost {commits} commits",
            front.name()
        );
        Ok(json!({ "case": "foreign traffic", "who": front.name(), "commits": commits }))
    }

    /// All commits from before some workers start until they have ended.
    fn life(
        &mut self,
        front: Front,
        workers: usize,
        spec: Spec,
        meanwhile: impl FnOnce(&Database) -> Result<()>,
    ) -> Result<i64> {
        let database = self.server.queue(SCHEMA)?;
        let before = self.meter.read()?;
        let crew = Crew::start(front, &database, workers, spec)?;
        thread::sleep(SETTLED);
        meanwhile(&database)?;
        crew.stop()?;
        Ok(self.meter.read()?.since(&before).commits)
    }

    fn enqueueing(&self) -> Result<Vec<Value>> {
        let mut cases: Vec<Enqueueing> = Enqueueing::all().collect();
        for _ in 0..self.settings.rounds {
            for case in &mut cases {
                let rate = match case.front {
                    None => self.insert()?,
                    Some(front) => self.enqueue(front, case.workers)?,
                };
                case.rates.push(rate);
            }
        }
        Ok(cases.iter().map(|case| case.print(&cases, self.settings)).collect())
    }

    fn insert(&self) -> Result<f64> {
        reference::create(self.server)?;
        let Settings { producers, jobs, .. } = *self.settings;
        rate(producers, jobs, || Reference::connect(self.server), |reference| reference.insert(&Foreign, false))
    }

    fn enqueue(&self, front: Front, workers: bool) -> Result<f64> {
        let Settings { producers, jobs, workers: count, .. } = *self.settings;
        let database = self.server.queue(SCHEMA)?;
        let crew = Crew::start(front, &database, if workers { count } else { 0 }, self.settings.listening())?;
        thread::sleep(SETTLED);
        let rate = rate(producers, jobs, || front.queue(&database), |queue| queue.enqueue(Foreign))?;
        crew.stop()?;
        Ok(rate)
    }
}

/// Jobs a second: `jobs` of them by so many producers, each with its own of what `connect` makes.
fn rate<P>(
    producers: usize,
    jobs: usize,
    connect: impl Fn() -> Result<P> + Sync,
    one: impl Fn(&mut P) -> Result<i64> + Sync,
) -> Result<f64> {
    let each = jobs / producers;
    let time = at_once(producers, each, connect, |producer| one(producer).map(drop))?;
    Ok((each * producers) as f64 / time.as_secs_f64())
}

/// Workers with nothing to do.
struct Crew(Vec<Running>);

impl Crew {
    fn start(front: Front, database: &Database, workers: usize, spec: Spec) -> Result<Self> {
        let lab = Lab::new();
        Ok(Self((0..workers).map(|_| front.start(database, &lab, spec)).collect::<Result<_>>()?))
    }

    fn stop(self) -> Result<()> {
        self.0.into_iter().try_for_each(Running::stop)
    }
}

/// One way to enqueue, with its rate in each round.
struct Enqueueing {
    /// `None`: the reference.
    front: Option<Front>,
    workers: bool,
    rates: Vec<f64>,
}

impl Enqueueing {
    fn all() -> impl Iterator<Item = Self> {
        let of = |(front, workers)| Self { front, workers, rates: Vec::new() };
        let fronts = Front::BOTH.into_iter().flat_map(|front| [(Some(front), false), (Some(front), true)]);
        [(None, false)].into_iter().chain(fronts).map(of)
    }

    fn print(&self, all: &[Self], settings: &Settings) -> Value {
        let rate = median(self.rates.iter().copied());
        let to = |wanted: &dyn Fn(&Self) -> bool| {
            let theirs = all.iter().find(|it| wanted(it)).into_iter().flat_map(|it| &it.rates);
            median_ratio(&self.rates, theirs)
        };
        let to_reference = to(&|it| it.front.is_none());
        let to_silence = to(&|it| it.front == self.front && !it.workers);
        let who = self.front.map_or("reference", Front::name);
        let workers = if self.workers { settings.workers } else { 0 };
        println!(
            "enqueueing, {who}, {} producers, {workers} workers: {rate:.0} jobs/s, :reference {}, :no workers {}",
            settings.producers,
            cell(Some(to_reference), 2),
            cell(Some(to_silence), 2),
        );
        json!({
            "case": "enqueueing", "who": who, "workers": workers, "jobs_per_second": rounded(rate),
            "ratio_reference": rounded(to_reference), "ratio_no_workers": rounded(to_silence),
        })
    }
}
