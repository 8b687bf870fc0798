//! How many no-op jobs per second do the front-ends drain, beside SQL loops written by hand?
//!
//! ```sh
//! cargo bench --features blocking,async --bench throughput
//! JOBS=40000 ROUNDS=5 cargo bench --features blocking,async --bench throughput
//! JOBS=1000000 ROUNDS=1 cargo bench --features blocking,async --bench throughput -- async/256/1x1    # memory
//! ```
//!
//! Each round runs every case once, references and front-ends in turns, so that what disturbs the machine disturbs all
//! alike; a ratio is taken within a round, and medians over the rounds. Everything drains in processes of its own: one
//! for a reference, one for each worker. There are three references: `same`, on as many connections as all
//! workers claim and settle over, and with as many jobs at a time on each; `single`, a job at a
//! time on 16 connections; `batched`, 256 at a time on 4. The clock runs from the first job in hand to the last one in
//! hand, in which time all but the first claims' jobs are claimed, and all but the last claims' are settled.
//!
//! Memory is that of all workers together when a tenth of the jobs is done, and at the end: flat, if both are the same.
//!
//! Settings: `JOBS`, `ROUNDS`, `CONCURRENCY=1,16,64,256`, `PROCESSES=1,2`, `CONNECTIONS=1,2` (of each worker), `SECONDS` (a round that would probably end
//! later is not begun), `SYNCHRONOUS_COMMIT=off` (for everybody; a crash of the server then loses the last moments'
//! commits, which the others do not), and part of the names of the cases that are wanted. The server is private, with
//! `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without `--bench`, which cargo passes,
//! it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "throughput/cases.rs"]
mod cases;
#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "throughput/crew.rs"]
mod crew;
#[path = "throughput/drain.rs"]
mod drain;
#[path = "throughput/measured.rs"]
mod measured;
mod support;
#[path = "throughput/table.rs"]
mod table;
#[path = "throughput/tally.rs"]
mod tally;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use cases::Settings;
use measured::Measured;
use support::Result;
use support::meter::Meter;
use support::options::Options;
use support::output::Head;
use support::server::Server;
use table::Table;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    support::exit(
        "throughput",
        match words.split_first() {
            Some((first, rest)) if first == "--drain" => drain::serve(rest),
            _ => run(),
        },
    )
}

fn run() -> Result<()> {
    let settings = Settings::new(&Options::new())?;
    let server = Server::start()?;
    let mut meter = Meter::new(&server)?;
    let head = Head::print("throughput", &server, settings.json())?;
    let mut table = Table::new(&settings);
    let began = Instant::now();
    for round in 1..=settings.rounds {
        let round_began = Instant::now();
        for case in settings.cases() {
            table.add(case, Measured::take(&server, &mut meter, case, settings.jobs(case))?);
        }
        eprintln!("round {round} of {}: {:.0?}", settings.rounds, round_began.elapsed());
        if began.elapsed() + round_began.elapsed() > settings.at_most {
            break;
        }
    }
    head.finish(&table.print())
}
