//! How many no-op jobs per second do the front-ends drain, beside a batched SQL loop written by hand?
//!
//! ```sh
//! cargo bench --features blocking,async --bench throughput
//! JOBS=40000 ROUNDS=5 cargo bench --features blocking,async --bench throughput
//! cargo bench --features blocking,async --bench throughput -- async/256/1
//! ```
//!
//! Each round runs every case once, reference and front-ends in turns, so that what disturbs the machine disturbs all
//! alike; a ratio is taken within a round, and medians over the rounds. A front-end with `c` workers is compared with
//! the reference on `c` connections, because a worker claims and settles through one; both take at most `n` jobs at a
//! time on each. The clock runs from the first job in hand to the last one in hand, in which time all but the first
//! claims' jobs are claimed, and all but the last claims' are settled.
//!
//! The server is private, with `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without
//! `--bench`, which cargo passes, it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    reason = "the ban on clocks, sleeps and threads is for the library; a bench measures with them"
)]

#[path = "../tests/cluster/mod.rs"]
mod cluster;
mod support;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use support::meter::Meter;
use support::server::Server;
use support::settings::Settings;
use support::table::Table;
use support::{Result, settings};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error} ({error:?})");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let settings = Settings::new(env::args().skip(1), |name| env::var(name).ok())?;
    let server = Server::start()?;
    let mut meter = Meter::new(&server)?;
    let mut table = Table::new(&settings, meter.server_settings()?);
    table.print_head()?;
    let began = Instant::now();
    for round in 1..=settings.rounds {
        let round_began = Instant::now();
        for case in settings.cases() {
            table.add(case, support::measure(&server, &mut meter, case, settings.jobs(case))?);
        }
        eprintln!("round {round} of {}: {:.0?}", settings.rounds, round_began.elapsed());
        if began.elapsed() + round_began.elapsed() > settings::AT_MOST {
            break;
        }
    }
    table.print()
}
