//! How soon jobs start, and what waiting costs.

use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, Statement};
use venturi::Submit;

use crate::Result;
use crate::front::{self, Front, Lab, Spec, Tick};
use crate::server::Server;

const SAMPLES: usize = 200;

pub(crate) fn report(server: &Server, front: Front) -> Result<()> {
    starts(server, front)?;
    idle(server, front)
}

/// From before the call that enqueues to the handler's first line, on an idle worker; and by how much a job that is due
/// in a second misses it.
fn starts(server: &Server, front: Front) -> Result<()> {
    let database = front::database(server, "starts")?;
    let queue = venturi::blocking::Queue::connect(&database)?;
    let lab = Lab::new();
    let running = front.start(&database, &lab, Spec::default())?;
    let mut waits = Vec::new();
    for nth in 1..=SAMPLES {
        let before = Instant::now();
        let job = queue.enqueue(Tick::default())?.id.get();
        let starts = lab.wait_starts(nth)?;
        waits.extend(starts.iter().find(|start| start.job == job).map(|start| start.at - before));
        thread::sleep(Duration::from_millis(5));
    }
    let mut delays = Vec::new();
    for nth in 1..=5 {
        let before = Instant::now();
        queue.enqueue(Submit::from(Tick::default()).delay(Duration::from_secs(1)))?;
        let starts = lab.wait_starts(SAMPLES + nth)?;
        delays.extend(starts.last().map(|start| start.at - before));
    }
    running.stop()?;
    // The first jobs find statements that are not prepared yet.
    waits.drain(..5);
    waits.sort();
    let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default();
    println!("  enqueue to start, idle: p50 {:.1?}, p95 {:.1?}, p99 {:.1?} of {}", at(50), at(95), at(99), waits.len());
    delays.sort();
    let (soonest, latest) = (delays.first().copied().unwrap_or_default(), delays.last().copied().unwrap_or_default());
    println!("  due in 1 s, poll_max 60 s: started after {soonest:.3?} to {latest:.3?}");
    Ok(())
}

/// Transactions of an idle worker, by itself and while a foreign kind is busy.
fn idle(server: &Server, front: Front) -> Result<()> {
    const POLL_MAX: Duration = Duration::from_secs(2);
    const POLLS: u32 = 5;
    const FOREIGN: u32 = 20;
    let database = front::database(server, "idle")?;
    let (mut counter, mut notifier) = (Counter::new(server)?, Notifier::new(server)?);
    let running = front.start(&database, &Lab::new(), Spec { poll_max: POLL_MAX, ..Spec::default() })?;
    // A session may keep its counters to itself for ten seconds, and those of the start are not asked for.
    thread::sleep(Duration::from_secs(12));
    let alone = counter.during(|| thread::sleep(POLL_MAX * POLLS))?;
    println!("  an idle worker: {:.1} transactions per poll_max", alone / f64::from(POLLS));
    let mut told = Ok(());
    let busy = counter.during(|| {
        told = notifier.notify(FOREIGN);
        thread::sleep(POLL_MAX * POLLS);
    })?;
    told?;
    // The notifications themselves, and the one statement that has them counted.
    let more = busy - alone - f64::from(FOREIGN) - 1.0;
    println!("  {FOREIGN} notifications of a foreign kind: {more:+.0} transactions of the worker");
    running.stop()
}

/// Notifies of jobs of a kind that nobody here runs.
struct Notifier {
    client: Client,
    notify: Statement,
    flush: Statement,
}

impl Notifier {
    fn new(server: &Server) -> Result<Self> {
        let mut client = server.connect()?;
        let notify = client.prepare("SELECT pg_notify('figures_idle', 'v1;foreign;0')")?;
        let flush = client.prepare(FLUSH)?;
        Ok(Self { client, notify, flush })
    }

    fn notify(&mut self, times: u32) -> Result<()> {
        for _ in 0..times {
            self.client.execute(&self.notify, &[])?;
        }
        self.client.execute(&self.flush, &[])?;
        Ok(())
    }
}

/// Makes a session's counters visible when its statement ends, not up to ten seconds later.
const FLUSH: &str = "SELECT pg_stat_force_next_flush()";

/// Counts the database's transactions.
struct Counter {
    client: Client,
    flush: Statement,
    count: Statement,
}

impl Counter {
    fn new(server: &Server) -> Result<Self> {
        let mut client = server.connect()?;
        let flush = client.prepare(FLUSH)?;
        let count = client.prepare(
            "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()",
        )?;
        Ok(Self { client, flush, count })
    }

    /// Transactions while `act` goes on, without the two of this counter that fall in between.
    fn during(&mut self, act: impl FnOnce()) -> Result<f64> {
        let before = self.read()?;
        act();
        Ok(self.read()? - before - 2.0)
    }

    fn read(&mut self) -> Result<f64> {
        self.client.execute(&self.flush, &[])?;
        Ok(self.client.query_one(&self.count, &[])?.get(0))
    }
}
