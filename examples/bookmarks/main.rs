//! A bookmark service: it fetches each page that is bookmarked, stores its title, and sends a mail when it is there.
//!
//! `DATABASE_URL=… cargo run --example bookmarks --features blocking,async`. It starts a small web server of its own to
//! fetch from. SIGTERM and Ctrl-C end it in good order.
//!
//! Fetching blocks, so it runs on threads; sending mails waits, so it is a future. One worker does both. A title, the job
//! that fetched it and the job that will send the mail are stored in one transaction.

#![allow(clippy::print_stdout, reason = "a program of its own")]

mod site;

use std::error::Error;
use std::time::Duration;

use postgres::NoTls;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use venturi::r#async::{self, Worker};
use venturi::blocking::{self, CompleteIn};
use venturi::{Backoff, CancellationToken, Context, Database, Outcome, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct FetchBookmark {
    url: String,
}

impl Task for FetchBookmark {
    const KIND: &'static str = "fetch_bookmark";
    type Carry = ();

    fn timeout() -> Option<Duration> {
        Some(Duration::from_secs(60))
    }

    fn backoff() -> Option<Backoff> {
        Some(Backoff::new(Duration::from_millis(200), Duration::from_secs(3_600)))
    }
}

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
    text: String,
}

impl Task for SendEmail {
    const KIND: &'static str = "send_email";
    type Carry = ();
}

/// What the handlers share.
struct App {
    http: ureq::Agent,
    /// To connect with; a connection pool, in earnest.
    dsn: String,
    queue: blocking::Queue,
}

impl blocking::Handler<App> for FetchBookmark {
    fn handle(&self, context: &mut Context<()>, app: &App) -> Result<Outcome, TaskError> {
        let page = match app.http.get(&self.url).call() {
            Ok(mut response) => response.body_mut().read_to_string()?,
            Err(gone @ ureq::Error::StatusCode(404 | 410)) => return Err(TaskError::permanent(gone)),
            Err(error) => return Err(error.into()), // tried again later
        };
        let title = title(&page).ok_or_else(|| TaskError::permanent("the page has no title"))?;

        let mut client = postgres::Client::connect(&app.dsn, NoTls)?;
        let mut transaction = client.transaction()?;
        transaction.execute("INSERT INTO bookmark (url, title) VALUES ($1, $2)", &[&self.url, &title])?;
        let mail = SendEmail { to: "ada@example.org".into(), text: format!("{title} is bookmarked") };
        app.queue.enqueue_with(&mut transaction, mail)?;
        context.complete_in(&mut transaction)?;
        transaction.commit()?;
        Ok(Outcome::completed())
    }
}

impl r#async::Handler<App> for SendEmail {
    async fn handle(&self, context: &mut Context<()>, _app: &App) -> Result<Outcome, TaskError> {
        tokio::time::sleep(Duration::from_millis(20)).await; // the mail server takes its time
        println!("job {} mails {}: {}", context.job_id(), self.to, self.text);
        Ok(Outcome::completed())
    }
}

fn title(page: &str) -> Option<&str> {
    let (_, after) = page.split_once("<title>")?;
    Some(after.split_once("</title>")?.0)
}

/// Makes the tables, and bookmarks some pages of the site.
fn prepare(dsn: &str, database: &Database, site: &str) -> Result<blocking::Queue, Box<dyn Error + Send + Sync>> {
    blocking::migrate(database)?;
    let mut client = postgres::Client::connect(dsn, NoTls)?;
    client.batch_execute("CREATE TABLE IF NOT EXISTS bookmark (url text NOT NULL, title text NOT NULL)")?;
    let queue = blocking::Queue::connect(database)?;
    queue.enqueue_many(["/ada", "/busy", "/gone"].map(|path| FetchBookmark { url: format!("{site}{path}") }))?;
    Ok(queue)
}

async fn hear_signals(shutdown: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! { it = tokio::signal::ctrl_c() => it?, _ = terminate.recv() => {} }
    shutdown.cancel();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    env_logger::init();
    let dsn = std::env::var("DATABASE_URL")?;
    let database = Database::new(&dsn)?;
    let site = site::start()?;
    let (own, theirs) = (database.clone(), dsn.clone());
    let queue = tokio::task::spawn_blocking(move || prepare(&theirs, &own, &site)).await??;

    let shutdown = CancellationToken::new();
    tokio::spawn(hear_signals(shutdown.clone()));
    let worker = Worker::builder(App { http: ureq::Agent::new_with_defaults(), dsn, queue })
        .database(database)
        .register_blocking::<FetchBookmark>()
        .register::<SendEmail>()
        .concurrency(32) // most of the time they wait for others
        .spawner(|run| drop(tokio::spawn(run)))
        .build()?;
    let report = worker.run(shutdown).await?;
    println!("{} runs settled", report.settled);
    Ok(())
}
