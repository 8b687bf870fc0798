//! A process that drains jobs which do nothing: its own end of the conversation with the bench.
//!
//! It says `ready`, waits for a line, drains, says how many jobs it has had in hand whenever that has changed, and
//! stops when its standard input ends. Its last line is its [`Account`].

use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use serde::{Deserialize, Serialize};
use venturi::{CancellationToken, Context, Database, Outcome, TaskError, r#async, blocking};

use super::cases::{Case, Who};
use super::tally::{Tally, now};
use crate::support::nothing::Nothing;
use crate::support::reference::{self, Reference};
use crate::support::server::Server;
use crate::support::{Result, each_on_a_thread, process};

pub(crate) const SCHEMA: &str = "throughput";

/// How many jobs go to a queue in one call.
const AT_ONCE: usize = 1_000;
/// How often a process looks whether there is something to say.
const SAY_EVERY: Duration = Duration::from_millis(5);
/// Memory is looked at when this part of the jobs is done, so that everything has been allocated once, and at the end.
const WARM_AFTER: usize = 10;

impl blocking::Handler<Tally> for Nothing {
    fn handle(&self, _context: &mut Context<()>, tally: &Tally) -> std::result::Result<Outcome, TaskError> {
        tally.count();
        Ok(Outcome::completed())
    }
}

impl r#async::Handler<Tally> for Nothing {
    async fn handle(&self, _context: &mut Context<()>, tally: &Tally) -> std::result::Result<Outcome, TaskError> {
        tally.count();
        Ok(Outcome::completed())
    }
}

/// What one process has to tell, in seconds and bytes. Moments are on the clock that processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) jobs: usize,
    pub(crate) began: f64,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// From the word to stop, or the last job if that was later, to the end of everything.
    pub(crate) stop: f64,
    pub(crate) cpu: Option<f64>,
    pub(crate) memory_warm: Option<u64>,
    pub(crate) memory_end: Option<u64>,
}

/// Jobs for a case. Through a queue, so that rows are as they are in earnest.
pub(crate) fn fill(server: &Server, who: Who, jobs: usize) -> Result<()> {
    if who == Who::Reference {
        return reference::fill(server, jobs, &Nothing::new());
    }
    let queue = blocking::Queue::connect(&server.queue(SCHEMA)?)?;
    let some = vec![Nothing::new(); AT_ONCE];
    let mut left = jobs;
    while left > 0 {
        let now = left.min(AT_ONCE);
        queue.enqueue_many(some.iter().take(now))?;
        left -= now;
    }
    Ok(())
}

/// The process: `WHO CONCURRENCY CONNECTIONS EACH JOBS`, with the server in `DATABASE_URL`.
pub(crate) fn serve(words: &[String]) -> Result<()> {
    let [who, concurrency, count, each, jobs] = words else {
        return Err("--drain WHO CONCURRENCY CONNECTIONS EACH JOBS".into());
    };
    let who = Who::ALL.into_iter().find(|it| it.name() == who).ok_or("nobody of this name drains")?;
    let case = Case { who, concurrency: concurrency.parse()?, count: count.parse()?, each: each.parse()? };
    let (warm, server) = (jobs.parse::<usize>()? / WARM_AFTER, Server::start()?);
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let (tally, told) = (Tally::new(), when_told());
    let before = process::own_time();
    let ended = AtomicBool::new(false);
    let memory_warm = thread::scope(|scope| {
        let saying = scope.spawn(|| say(&tally, warm, &ended));
        let done = drain(&server, case, &tally, &told);
        ended.store(true, Ordering::Release);
        let memory_warm = saying.join().map_err(|_| "the thread that counts panicked")?;
        done.map(|()| memory_warm)
    })?;
    let cpu = process::own_time().zip(before).map(|(now, then)| (now - then).as_secs_f64());
    let stop = (now() - tally.last().max(told.at())).max(0.0);
    let (jobs, memory_end) = (tally.counted(), process::resident_bytes());
    let (began, first, last) = (tally.began(), tally.first(), tally.last());
    let account = Account { jobs, began, first, last, stop, cpu, memory_warm, memory_end };
    println!("{}", serde_json::to_string(&account)?);
    Ok(())
}

fn drain(server: &Server, case: Case, tally: &Tally, told: &Told) -> Result<()> {
    match case.who {
        Who::Reference => each_on_a_thread(case.count, |_| drain_by_hand(server, case.concurrency, tally)).map(drop),
        Who::Blocking => drain_blocking(server, case, tally, told.token.clone()),
        Who::Async => drain_async(server, case, tally, told.token.clone()),
    }
}

fn drain_blocking(server: &Server, case: Case, tally: &Tally, stop: CancellationToken) -> Result<()> {
    let worker = blocking::Worker::builder(tally.clone())
        .database(database(server)?)
        .register::<Nothing>()
        .concurrency(case.concurrency * case.each)
        .connections(case.each)
        .build()?;
    worker.run(stop)?;
    Ok(())
}

/// Without an executor: `run()` polls the handlers, and a bare `block_on` polls `run()`.
fn drain_async(server: &Server, case: Case, tally: &Tally, stop: CancellationToken) -> Result<()> {
    let worker = r#async::Worker::builder(tally.clone())
        .database(database(server)?)
        .register::<Nothing>()
        .concurrency(case.concurrency * case.each)
        .connections(case.each)
        .build()?;
    block_on(worker.run(stop))?;
    Ok(())
}

fn drain_by_hand(server: &Server, at_once: usize, tally: &Tally) -> Result<()> {
    let mut reference = Reference::connect(server)?;
    loop {
        let jobs = reference.claim::<Nothing>(at_once)?;
        if jobs.is_empty() {
            return Ok(());
        }
        let mut ids = Vec::with_capacity(jobs.len());
        for (id, job) in jobs {
            std::hint::black_box(job);
            ids.push(id);
            tally.count();
        }
        reference.settle(&ids)?;
    }
}

fn database(server: &Server) -> Result<Database> {
    Ok(Database::new(&server.dsn)?.schema(SCHEMA)?)
}

/// Says how many jobs have been in hand, until all has ended; answers how much memory was in use when it was warm.
fn say(tally: &Tally, warm: usize, ended: &AtomicBool) -> Option<u64> {
    let (mut said, mut memory_warm) = (0, None);
    loop {
        // Before the count, which is the last one then.
        let is_last = ended.load(Ordering::Acquire);
        let count = tally.counted();
        if count != said {
            println!("{count}");
            said = count;
        }
        if memory_warm.is_none() && count >= warm {
            memory_warm = process::resident_bytes();
        }
        if is_last {
            return memory_warm;
        }
        thread::sleep(SAY_EVERY);
    }
}

/// The word to stop.
struct Told {
    token: CancellationToken,
    at: Arc<Mutex<f64>>,
}

impl Told {
    fn at(&self) -> f64 {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn when_told() -> Told {
    let told = Told { token: CancellationToken::new(), at: Arc::default() };
    let (token, at) = (told.token.clone(), Arc::clone(&told.at));
    thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        *at.lock().unwrap_or_else(PoisonError::into_inner) = now();
        token.cancel();
    });
    told
}
