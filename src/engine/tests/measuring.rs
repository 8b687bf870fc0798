//! How many steps a second the engine takes, with a server and handlers that take no time. Not a test, but only here
//! can the engine be reached; `scripts/bench engine` runs it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the bans are for the library; this measures, and prints what it measured"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use super::server::json;
use super::world::{config, kind};
use crate::Priority;
use crate::engine::{Engine, Input, Output, Rules};
use crate::job::{ClaimedJob, RunId};
use crate::report::{Report, Verdict};
use crate::statement::{Claim, ClaimReply, Finding, Inquiry, Reply, Settled, Statement, SurveyReply};

const CONCURRENCIES: [usize; 3] = [1, 16, 256];
const KIND: &str = "nothing";

#[test]
#[ignore = "a measurement: `scripts/bench engine`"]
fn engine_steps() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (jobs, rounds) = (number("JOBS", 200_000), number("ROUNDS", 5));
    println!("jobs = {jobs}, rounds = {rounds}, profile = {}", if cfg!(debug_assertions) { "dev" } else { "release" });
    let head = ("n", "steps/s", "jobs/s", "steps/job", "ns/job", "map ns/job", "ratio");
    println!("{:>5} {:>12} {:>10} {:>9} {:>8} {:>10} {:>6}", head.0, head.1, head.2, head.3, head.4, head.5, head.6);
    let mut cases = Vec::new();
    for concurrency in CONCURRENCIES {
        // In turns, so that what disturbs the machine disturbs both.
        let both: Vec<_> = (0..rounds).map(|_| (drive(concurrency, jobs), keep_book(concurrency, jobs))).collect();
        let steps = both.first().unwrap().0.steps as f64;
        let per_job = |time: Duration| time.as_secs_f64() * 1e9 / jobs as f64;
        let engine = median(both.iter().map(|(run, _)| per_job(run.time)));
        let map = median(both.iter().map(|(_, time)| per_job(*time)));
        let ratio = median(both.iter().map(|(run, time)| run.time.as_secs_f64() / time.as_secs_f64()));
        let (steps_per_job, jobs_per_second) = (steps / jobs as f64, 1e9 / engine);
        let steps_per_second = jobs_per_second * steps_per_job;
        println!(
            "{concurrency:>5} {steps_per_second:>12.0} {jobs_per_second:>10.0} {steps_per_job:>9.2} {engine:>8.0} \
             {map:>10.0} {ratio:>6.2}"
        );
        cases.push(serde_json::json!({
            "concurrency": concurrency, "steps_per_second": steps_per_second.round(),
            "jobs_per_second": jobs_per_second.round(), "steps_per_job": steps_per_job, "ns_per_job": engine.round(),
            "map_ns_per_job": map.round(), "ratio": ratio,
        }));
    }
    let settings = serde_json::json!({ "jobs": jobs, "rounds": rounds });
    println!("{}", serde_json::json!({ "bench": "engine", "settings": settings, "cases": cases }));
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

struct Run {
    time: Duration,
    /// Inputs taken and outputs given.
    steps: u64,
}

/// The loop of a front-end, around an engine whose server answers at once and whose handlers are done when they start.
fn drive(concurrency: usize, jobs: usize) -> Run {
    let began = Instant::now();
    let mut server = Server { next: 0 };
    let mut engine = Engine::new(rules(concurrency), began);
    let (mut steps, mut done, mut inputs) = (0, 0, Vec::new());
    while done < jobs {
        let now = Instant::now();
        while let Some(output) = engine.output(now) {
            steps += 1;
            match output {
                Output::Connect(link, epoch) => inputs.push(Input::Connected(link, epoch)),
                Output::Execute(_, id, statement) => inputs.push(Input::Reply(id, Ok(server.answer(&statement)))),
                Output::Start(start) => {
                    done += 1;
                    black_box(start.job);
                    inputs.push(Input::Finished(start.id, completed()));
                }
                Output::Observe(event) => drop(black_box(event)),
                other => panic!("nothing goes wrong here: {other:?}"),
            }
        }
        assert!(!inputs.is_empty(), "there is always something to do");
        steps += inputs.len() as u64;
        inputs.drain(..).for_each(|input| engine.input(now, input));
        black_box(engine.deadline());
    }
    Run { time: began.elapsed(), steps }
}

/// The least that anybody has to do with the same replies: remember each run, and forget it.
fn keep_book(concurrency: usize, jobs: usize) -> Duration {
    let began = Instant::now();
    let (mut server, mut running) = (Server { next: 0 }, BTreeMap::new());
    let mut done = 0;
    while done < jobs {
        for job in server.jobs(concurrency) {
            running.insert(job.id, Instant::now());
            done += 1;
            black_box((job, completed()));
        }
        let ended: Vec<RunId> = running.keys().copied().collect();
        for (id, answer) in accepted(ended.iter().copied()) {
            black_box((running.remove(&id), answer));
        }
    }
    began.elapsed()
}

fn rules(concurrency: usize) -> Rules {
    let (config, kinds) = (config(concurrency), vec![kind(KIND)]);
    Rules { config, kinds, worker: "host:1:sim".into(), channel: "venturi".to_owned(), listen: true, seed: 1 }
}

fn completed() -> Report {
    Report::new(Verdict::Completed { note: None })
}

fn accepted(ids: impl Iterator<Item = RunId>) -> Vec<(RunId, Settled)> {
    ids.map(|id| (id, Settled::Accepted)).collect()
}

/// Has as many jobs as anybody wants.
struct Server {
    next: i64,
}

impl Server {
    fn answer(&mut self, statement: &Statement) -> Reply {
        match statement {
            Statement::Exchange { settle, claim } => Reply::Exchange {
                settled: accepted(settle.iter().flat_map(|settle| settle.rows.iter().map(|row| row.id))),
                claim: claim.as_ref().map(|claim| self.claim(claim)),
            },
            Statement::Stale(_) => Reply::Stale(Vec::new()),
            Statement::Promote(_) => Reply::Promoted { promoted: 0, more_due: false, next_due: None },
            Statement::Survey(_) => {
                Reply::Survey(SurveyReply { ready: true, due: false, stale: false, next_due: None, next_expiry: None })
            }
            Statement::Renew(renew) => Reply::Renewed(renew.rows.iter().map(|(id, _)| (*id, false)).collect()),
            Statement::Check => Reply::Version { version: crate::migration::latest(), compatible_from: 1 },
            Statement::Inquiry(Inquiry::Cancellations { .. }) => Reply::Inquiry(Finding::Cancellations(Vec::new())),
            _ => Reply::Done,
        }
    }

    fn claim(&mut self, claim: &Claim) -> ClaimReply {
        let jobs = self.jobs(usize::try_from(claim.want).unwrap());
        ClaimReply { looked: jobs.len() as u64, jobs, malformed: Vec::new(), stale: false, looked_for: Some(0.0005) }
    }

    fn jobs(&mut self, count: usize) -> Vec<ClaimedJob> {
        let job = |id| ClaimedJob {
            id: RunId { job: id, run: 1 },
            kind: KIND.to_owned(),
            priority: Priority::Normal,
            created_at: SystemTime::UNIX_EPOCH,
            visible_at: SystemTime::UNIX_EPOCH,
            claimed_at: SystemTime::UNIX_EPOCH,
            trace: None,
            failure_count: 0,
            payload: json("null"),
            carry: None,
        };
        let first = self.next + 1;
        self.next += i64::try_from(count).unwrap();
        (first..=self.next).map(job).collect()
    }
}
