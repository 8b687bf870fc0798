//! Orders are placed with diesel, and each one's mail is a job that is enqueued in the same transaction.
//!
//! `DATABASE_URL=postgres://… cargo run`, in this folder. It places two orders, of which one is rolled back, and checks
//! that exactly the other one's mail is sent, without a poll.

use std::env;
use std::error::Error;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Integer, Nullable, Text};
use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Submit, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct SendMail {
    order: i64,
}

impl Task for SendMail {
    const KIND: &'static str = "send_mail";
    type Carry = ();
}

impl Handler<Mutex<Sender<i64>>> for SendMail {
    fn handle(&self, _context: &mut Context<()>, sent: &Mutex<Sender<i64>>) -> Result<Outcome, TaskError> {
        sent.lock().map_err(|_| "another handler panicked")?.send(self.order)?;
        Ok(Outcome::completed())
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Stores an order and the job that belongs to it.
fn order(database: &Database, inside: &mut PgConnection, item: &str) -> Result<i64, Box<dyn Error>> {
    let order = diesel::sql_query("INSERT INTO diesel_order (item) VALUES ($1) RETURNING id");
    let order = order.bind::<Text, _>(item).get_result::<Number>(inside)?.id;
    let job = Submit::from(SendMail { order }).prepare()?;
    let Number { id } = diesel::sql_query(job.sql(database))
        .bind::<Text, _>(job.kind())
        .bind::<Text, _>(job.payload())
        .bind::<Integer, _>(job.priority())
        .bind::<Double, _>(job.delay())
        .bind::<Nullable<Text>, _>(job.dedup_key())
        .bind::<Nullable<Double>, _>(job.due_at())
        .get_result(inside)?;
    println!("order {order} ({item}) is job {id}");
    Ok(order)
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL")?;
    let database = Database::new(&url)?.schema("with_diesel")?;
    migrate(&database)?;
    let mut client = PgConnection::establish(&url)?;
    let table = "CREATE TABLE IF NOT EXISTS diesel_order (id bigserial PRIMARY KEY, item text NOT NULL)";
    diesel::sql_query(table).execute(&mut client)?;

    let (sent, mails) = channel();
    let shutdown = CancellationToken::new();
    let worker = Worker::builder(Mutex::new(sent)).database(database.clone()).poll_max(Duration::from_secs(3_600));
    let (worker, token) = (worker.register::<SendMail>().build()?, shutdown.clone());
    let worker = thread::spawn(move || worker.run(token));

    let rolled_back = client.transaction::<(), Box<dyn Error>, _>(|inside| {
        order(&database, inside, "typewriter")?;
        Err("the customer has gone".into())
    });
    assert!(rolled_back.is_err());
    let kept = client.transaction(|inside| order(&database, inside, "ribbon"))?;

    let mail = mails.recv_timeout(Duration::from_secs(30))?;
    shutdown.cancel();
    let report = worker.join().map_err(|_| "the worker panicked")??;
    if mail != kept || report.settled != 1 || mails.try_recv().is_ok() {
        return Err(format!("expected one mail, for order {kept}: {mail}, {report:?}").into());
    }
    println!("one mail was sent, for order {kept}; the order that was rolled back left nothing");
    Ok(())
}
