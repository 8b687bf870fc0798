//! Orders are placed with sqlx, and each one's mail is a job that is enqueued in the same transaction.
//!
//! `DATABASE_URL=postgres://… cargo run`, in this folder. It places two orders, of which one is rolled back, and checks
//! that exactly the other one's mail is sent, without a poll.

use std::env;
use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, Postgres, Transaction};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use venturi::r#async::{Handler, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Submit, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct SendMail {
    order: i64,
}

impl Task for SendMail {
    const KIND: &'static str = "send_mail";
    type Carry = ();
}

impl Handler<UnboundedSender<i64>> for SendMail {
    async fn handle(&self, _context: &mut Context<()>, sent: &UnboundedSender<i64>) -> Result<Outcome, TaskError> {
        sent.send(self.order)?;
        Ok(Outcome::completed())
    }
}

/// Stores an order and the job that belongs to it.
async fn order(database: &Database, inside: &mut Transaction<'_, Postgres>, item: &str) -> Result<i64, Box<dyn Error>> {
    let order = sqlx::query_scalar("INSERT INTO sqlx_order (item) VALUES ($1) RETURNING id");
    let order: i64 = order.bind(item).fetch_one(&mut **inside).await?;
    let job = Submit::from(SendMail { order }).prepare()?;
    let sql = job.sql(database);
    let id: i64 = sqlx::query_scalar(&sql)
        .bind(job.kind())
        .bind(job.payload())
        .bind(job.priority())
        .bind(job.delay())
        .bind(job.dedup_key())
        .bind(job.due_at())
        .fetch_one(&mut **inside)
        .await?;
    println!("order {order} ({item}) is job {id}");
    Ok(order)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL")?;
    let database = Database::new(&url)?.schema("with_sqlx")?;
    migrate(&database).await?;
    let mut client = PgConnection::connect(&url).await?;
    let table = "CREATE TABLE IF NOT EXISTS sqlx_order (id bigserial PRIMARY KEY, item text NOT NULL)";
    sqlx::query(table).execute(&mut client).await?;

    let (sent, mut mails) = unbounded_channel();
    let shutdown = CancellationToken::new();
    let worker = Worker::builder(sent).database(database.clone()).poll_max(Duration::from_secs(3_600));
    let worker = tokio::spawn(worker.register::<SendMail>().build()?.run(shutdown.clone()));

    let mut inside = client.begin().await?;
    order(&database, &mut inside, "typewriter").await?;
    inside.rollback().await?;

    let mut inside = client.begin().await?;
    let kept = order(&database, &mut inside, "ribbon").await?;
    inside.commit().await?;

    let mail = timeout(Duration::from_secs(30), mails.recv()).await?;
    shutdown.cancel();
    let report = worker.await??;
    if mail != Some(kept) || report.settled != 1 || mails.try_recv().is_ok() {
        return Err(format!("expected one mail, for order {kept}: {mail:?}, {report:?}").into());
    }
    println!("one mail was sent, for order {kept}; the order that was rolled back left nothing");
    Ok(())
}
