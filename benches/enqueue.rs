//! How many jobs per second are enqueued, beside the same INSERT and COPY written by hand?
//!
//! ```sh
//! cargo bench --features blocking,async --bench enqueue
//! ROUNDS=9 cargo bench --features blocking,async --bench enqueue -- 10000/
//! ```
//!
//! Calls with 1, 100 and 10,000 rows, from 1 and from 8 threads, with and without notification, and once more beside a
//! million finished jobs. The front-ends share one queue handle; by hand each thread has a connection of its own, no
//! scheduled jobs, no side table for large payloads, and COPY returns no numbers. Everybody writes the same payloads as
//! JSON while the clock runs. Somebody listens and is interested, as a worker is.
//!
//! Each round runs all ways of a case right after each other, beginning with another one each time, so that what disturbs
//! the machine disturbs all alike; a ratio is taken within a round, and medians over the rounds. The server is private,
//! with `fsync = on`, unless `DATABASE_URL` names another one. The last line is JSON. Without `--bench`, which cargo
//! passes, it is a short trial that only shows that it works.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the bans are for the library; a bench measures, and prints what it measured"
)]

#[path = "enqueue/case.rs"]
mod case;
#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "../tests/suite/interest.rs"]
mod interest;
mod support;
#[path = "enqueue/table.rs"]
mod table;
#[path = "enqueue/ways.rs"]
mod ways;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use case::{Settings, Way};
use support::Result;
use support::options::Options;
use support::output::Head;
use support::server::Server;
use table::Table;

/// A round that would probably end later than this is not begun.
const AT_MOST: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    support::exit("enqueue", run())
}

fn run() -> Result<()> {
    let settings = Settings::new(&Options::new())?;
    let server = Server::start()?;
    let head = Head::print("enqueue", &server, settings.json())?;
    let mut client = server.connect()?;
    let _listener = ways::prepare(&server, &settings)?;
    let mut table = Table::new(&settings);
    let began = Instant::now();
    for round in 0..settings.rounds {
        let round_began = Instant::now();
        for case in settings.cases() {
            let mut ways: Vec<Way> = case.ways().collect();
            let turn = round % ways.len();
            ways.rotate_left(turn);
            for way in ways {
                client.batch_execute(&format!("TRUNCATE {}.live", case.schema()))?;
                let rows = settings.calls(case) * case.producers * case.rows;
                let time = ways::measure(&server, case, way, settings.calls(case))?;
                table.add(round, case, way, rows as f64 / time.as_secs_f64());
            }
        }
        eprintln!("round {} of {}: {:.0?}", round + 1, settings.rounds, round_began.elapsed());
        if began.elapsed() + round_began.elapsed() > AT_MOST {
            break;
        }
    }
    head.finish(&table.print())
}
