//! One side of an upgrade: a program that is built over an earlier venturi, and over this one.
//!
//! It uses only what both have. `migrate`; `enqueue FROM TO`, with numbers of jobs; `work FRONT NAME`, until SIGTERM:
//! each job leaves a row in the table `effect`.

use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;
use std::{env, thread};

use postgres::{Client, NoTls};
use serde::{Deserialize, Serialize};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError, r#async, blocking};

#[derive(Serialize, Deserialize)]
struct Chore {
    number: i64,
}

impl Task for Chore {
    const KIND: &'static str = "chore";
    /// A job runs twice, so that it also crosses from one version to the other by its carry.
    type Carry = bool;
}

struct Hand {
    /// One for all: what a password costs in connecting is most of what such a job takes.
    client: Mutex<Client>,
    name: String,
}

impl Hand {
    fn work(&self, chore: &Chore, context: &mut Context<bool>) -> Result<Outcome, TaskError> {
        if !*context.carry() {
            *context.carry_mut() = true;
            return Ok(Outcome::pause_in(Duration::from_millis(50)));
        }
        thread::sleep(Duration::from_millis(10));
        let mut client = self.client.lock().map_err(|_| "another handler panicked")?;
        client.execute("INSERT INTO effect (number, hand) VALUES ($1, $2)", &[&chore.number, &self.name])?;
        Ok(Outcome::completed())
    }
}

impl blocking::Handler<Hand> for Chore {
    fn handle(&self, context: &mut Context<bool>, hand: &Hand) -> Result<Outcome, TaskError> {
        hand.work(self, context)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let dsn = env::var("DATABASE_URL")?;
    let database = Database::new(&dsn)?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["migrate"] => blocking::migrate(&database)?,
        ["enqueue", from, to] => {
            let numbers = from.parse::<i64>()?..to.parse()?;
            blocking::Queue::connect(&database)?.enqueue_many(numbers.map(|number| Chore { number }))?;
        }
        ["work", front, name] => {
            let client = Mutex::new(Client::connect(&dsn, NoTls)?);
            work(front, Hand { client, name: name.to_owned() }, database)?;
        }
        _ => return Err("migrate, enqueue FROM TO, or work FRONT NAME".into()),
    }
    Ok(())
}

fn work(front: &str, hand: Hand, database: Database) -> Result<(), Box<dyn Error>> {
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    ctrlc::set_handler(move || token.cancel())?;
    // Both fronts run the same handler: on threads.
    let report = match front {
        "blocking" => {
            let worker = blocking::Worker::builder(hand).database(database).register::<Chore>().concurrency(4);
            worker.build()?.run(shutdown)?
        }
        "async" => {
            let worker = r#async::Worker::builder(hand).database(database).register_blocking::<Chore>().concurrency(4);
            futures_lite::future::block_on(worker.build()?.run(shutdown))?
        }
        _ => return Err("the front is blocking or async".into()),
    };
    println!("settled {}", report.settled);
    Ok(())
}
