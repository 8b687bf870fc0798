//! A worker whose metrics Prometheus can scrape, with a few jobs to be counted.
//!
//! `DATABASE_URL=postgres://… cargo run`, in this folder; then `curl localhost:9000/metrics`. `ADDRESS` says where to listen.
//! SIGTERM and Ctrl-C end the worker in good order.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Metrics, Outcome, Task, TaskError};

/// Seconds. Jobs wait and run from milliseconds to hours.
const BUCKETS: &[f64] = &[0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0];

#[derive(Serialize, Deserialize)]
struct Resize {
    width: u32,
}

impl Task for Resize {
    const KIND: &'static str = "resize";
    type Carry = ();
}

impl Handler<()> for Resize {
    fn handle(&self, context: &mut Context<()>, _state: &()) -> Result<Outcome, TaskError> {
        match self.width {
            0 => Err(TaskError::permanent("an image without a width")),
            13 if context.run_count() == 1 => Err("the disk is busy".into()),
            _ => Ok(Outcome::completed()),
        }
    }
}

/// What an exporter's own server does; a web service would have a route for it.
fn serve(listener: &TcpListener, handle: &PrometheusHandle) {
    for connection in listener.incoming().flatten() {
        if let Err(error) = answer(connection, &handle.render()) {
            eprintln!("a scrape failed: {error}");
        }
    }
}

fn answer(mut connection: TcpStream, text: &str) -> std::io::Result<()> {
    // The request's head; what it asks for does not matter.
    let mut head = BufReader::new(&connection).lines();
    while head.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let length = text.len();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    // The recorder comes first: what is told before it is there is lost.
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let handle = PrometheusBuilder::new().set_buckets_for_metric(seconds, BUCKETS)?.install_recorder()?;

    let database = Database::from_env()?;
    migrate(&database)?;
    let queue = Queue::builder(&database).observer(Metrics::new()).connect()?;
    queue.enqueue_many([640, 0, 13, 800, 1_024].map(|width| Resize { width }))?;

    let listener = TcpListener::bind(env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:9000".into()))?;
    println!("listening on {}", listener.local_addr()?);
    thread::spawn(move || serve(&listener, &handle));

    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    ctrlc::set_handler(move || token.cancel())?;
    let builder = Worker::builder(()).database(database).observer(Metrics::new()).register::<Resize>();
    let report = builder.build()?.run(shutdown)?;
    println!("{} runs settled", report.settled);
    Ok(())
}
