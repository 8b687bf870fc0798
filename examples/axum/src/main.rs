//! A web service whose requests enqueue jobs in the transactions that store their data, and a worker beside it.
//!
//! `DATABASE_URL=postgres://… cargo run`, in this folder; then `curl -d email=ada@example.org localhost:3000/members`.
//! Whoever becomes a member is mailed, and who does not (the address is taken) is not: member and job are stored together.
//! `ADDRESS` says where to listen. SIGTERM and Ctrl-C end server and worker in good order.

use std::env;
use std::error::Error;
use std::future::IntoFuture;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Form, Router};
use deadpool_postgres::{Config, Pool, Runtime};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;
use venturi::r#async::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct Welcome {
    email: String,
}

impl Task for Welcome {
    const KIND: &'static str = "welcome";
    type Carry = ();
}

impl Handler<()> for Welcome {
    async fn handle(&self, _context: &mut Context<()>, _state: &()) -> Result<Outcome, TaskError> {
        println!("mails {}", self.email);
        Ok(Outcome::completed())
    }
}

#[derive(Clone)]
struct App {
    pool: Pool,
    queue: Queue,
}

#[derive(Deserialize)]
struct NewMember {
    email: String,
}

async fn join(State(app): State<App>, Form(member): Form<NewMember>) -> Result<StatusCode, (StatusCode, String)> {
    store(&app, member.email).await.map_err(|error| {
        let taken = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code)
            == Some(&SqlState::UNIQUE_VIOLATION);
        (if taken { StatusCode::CONFLICT } else { StatusCode::INTERNAL_SERVER_ERROR }, format!("{error}\n"))
    })?;
    Ok(StatusCode::CREATED)
}

async fn store(app: &App, email: String) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut client = app.pool.get().await?;
    let mut transaction = client.transaction().await?;
    // The job first, to show that it goes when the transaction does.
    app.queue.enqueue_with(&mut *transaction, Welcome { email: email.clone() }).await?;
    transaction.execute("INSERT INTO member (email) VALUES ($1)", &[&email]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn hear_signals(shutdown: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! { it = ctrl_c() => it?, _ = terminate.recv() => {} }
    shutdown.cancel();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = env::var("DATABASE_URL")?;
    let database = Database::new(&url)?;
    migrate(&database).await?;
    let pool = Config { url: Some(url), ..Config::new() }.create_pool(Some(Runtime::Tokio1), NoTls)?;
    let table = "CREATE TABLE IF NOT EXISTS member (email text PRIMARY KEY)";
    pool.get().await?.batch_execute(table).await?;
    let app = App { pool, queue: Queue::connect(&database).await? };

    let shutdown = CancellationToken::new();
    tokio::spawn(hear_signals(shutdown.clone()));
    let worker = Worker::builder(()).database(database).register::<Welcome>().build()?.run(shutdown.clone());
    let worker = tokio::spawn(worker);
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let routes = Router::new().route("/members", post(join)).with_state(app);
    axum::serve(listener, routes).with_graceful_shutdown(shutdown.cancelled()).into_future().await?;
    let report = worker.await??;
    println!("{} runs settled", report.settled);
    Ok(())
}
