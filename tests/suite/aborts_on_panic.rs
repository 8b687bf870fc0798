//! Not an example for users: a worker whose handler panics, in a program that aborts on panic. The suite builds and runs
//! it: `aborts_on_panic FRONT DSN SCHEMA`.
#![cfg_attr(not(any(feature = "blocking", feature = "async")), allow(unused, reason = "it has no front-end to run"))]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "this program is there to end badly")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

/// Whatever the suite put into a job of its plain kind.
#[derive(Serialize, Deserialize)]
struct Deadly {}

impl Task for Deadly {
    const KIND: &'static str = "plain";
    type Carry = ();
}

#[cfg(feature = "blocking")]
impl venturi::blocking::Handler<()> for Deadly {
    fn handle(&self, _: &mut Context<()>, (): &()) -> Result<Outcome, TaskError> {
        panic!("this ends the process");
    }
}

#[cfg(feature = "async")]
impl venturi::r#async::Handler<()> for Deadly {
    async fn handle(&self, _: &mut Context<()>, (): &()) -> Result<Outcome, TaskError> {
        panic!("this ends the process");
    }
}

const LEASE: Duration = Duration::from_secs(3);

fn main() {
    let mut words = std::env::args().skip(1);
    let [front, dsn, schema] = [(); 3].map(|()| words.next().expect("FRONT DSN SCHEMA"));
    if cfg!(panic = "unwind") {
        eprintln!("to be built with -C panic=abort");
        std::process::exit(2);
    }
    let database = Database::new(&dsn).and_then(|it| it.schema(&schema)).expect("a database");
    let shutdown = CancellationToken::new();
    match front.as_str() {
        #[cfg(feature = "blocking")]
        "blocking" => {
            let builder = venturi::blocking::Worker::builder(()).database(database).lease(LEASE);
            drop(builder.register::<Deadly>().build().expect("a worker").run(shutdown).expect("a report"));
        }
        #[cfg(feature = "async")]
        "async" => {
            let builder = venturi::r#async::Worker::builder(()).database(database).lease(LEASE);
            let run = builder.register::<Deadly>().build().expect("a worker").run(shutdown);
            drop(futures_lite::future::block_on(run).expect("a report"));
        }
        other => panic!("no front-end {other}"),
    }
}
