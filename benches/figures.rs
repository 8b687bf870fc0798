//! The figures behind the worker model: shares of the priorities, leases, and exactness over processes.
//!
//! ```sh
//! scripts/figures
//! ```
//!
//! Everything is measured with both front-ends on a private server with `fsync = on`, unless `DATABASE_URL` names
//! another one. What has to be exact is checked, and a wrong figure ends the program with an error.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "figures/exactness.rs"]
mod exactness;
mod support;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use venturi::Priority;

use support::Result;
use support::front::{self, Front, Lab, Spec, Tick};
use support::server::Server;

fn main() -> ExitCode {
    support::exit(
        "figures",
        match env::args().nth(1).as_deref() {
            Some("--worker") => exactness::serve(env::args().skip(2)),
            _ => report(),
        },
    )
}

fn report() -> Result<()> {
    let server = Server::start()?;
    for front in Front::BOTH {
        println!("{}", front.name());
        for concurrency in [1, 16] {
            shares(&server, front, concurrency)?;
        }
        leases(&server, front)?;
        for processes in [2, 4] {
            exactness::report(&server, front, processes)?;
        }
    }
    Ok(())
}

/// With all tiers backlogged: which part of 1,600 claims each of them gets, and when it gets its first.
fn shares(server: &Server, front: Front, concurrency: usize) -> Result<()> {
    const CLAIMS: usize = 1_600;
    let database = server.queue("figures_shares")?;
    let queue = venturi::blocking::Queue::connect(&database)?;
    let tiers = [Priority::High, Priority::Normal, Priority::Low];
    for tier in tiers {
        queue.enqueue_many((0..CLAIMS).map(|_| venturi::Submit::from(Tick::default()).priority(tier)))?;
    }
    let lab = Lab::new();
    let running = front.start(&database, &lab, Spec { concurrency, ..Spec::default() })?;
    let starts = lab.wait_starts(CLAIMS)?;
    running.stop()?;
    let mut words = Vec::new();
    for tier in tiers {
        let taken = || starts.iter().take(CLAIMS).map(|start| start.priority);
        let share = 100.0 * taken().filter(|priority| *priority == tier).count() as f64 / CLAIMS as f64;
        let first = taken().position(|priority| priority == tier).map_or("never".to_owned(), |at| (at + 1).to_string());
        words.push(format!("{tier:?} {share:.2} % (first is start {first})"));
    }
    println!("  shares at concurrency {concurrency}: {}", words.join(", "));
    Ok(())
}

/// A run of ten seconds under a lease of three, beside a peer that would take the job.
fn leases(server: &Server, front: Front) -> Result<()> {
    let database = server.queue("figures_leases")?;
    let queue = venturi::blocking::Queue::connect(&database)?;
    let lab = Lab::new();
    let spec = Spec { lease: Some(Duration::from_secs(3)), ..Spec::default() };
    let workers = [front.start(&database, &lab, spec)?, front.start(&database, &lab, spec)?];
    queue.enqueue(Tick { nap_ms: 10_000, ..Tick::default() })?;
    let mut client = server.connect()?;
    let status = "SELECT status, run_count, failure_count FROM figures_leases.jobs";
    let done = front::poll(Duration::from_secs(40), || {
        let row = client.query_one(status, &[])?;
        Ok((row.get::<_, String>(0) == "completed").then(|| (row.get::<_, i32>(1), row.get::<_, i32>(2))))
    })?;
    for worker in workers {
        worker.stop()?;
    }
    println!("  a run of 10 s under a lease of 3 s beside a peer: {} run(s), {} failure(s)", done.0, done.1);
    if done == (1, 0) { Ok(()) } else { Err("a renewed run is run once".into()) }
}
