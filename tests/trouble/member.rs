//! Workers and producers: copies of this program, told what to be by a variable.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use venturi::{Backoff, CancellationToken, Database, Enqueued, Error, ErrorKind, ShutdownReport, Submit};

use super::cluster;
use super::dice::Dice;
use super::task::{Deed, Errand, Exact, Room};
use super::{LEASE, Outcomes};

const ORDERS: &str = "VENTURI_CHAOS_ORDERS";
/// How long an enqueue waits for a server that is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// A member that was let go and does not end has left the test long ago.
const LEFT_BEHIND: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Front {
    Threads,
    Futures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Duty {
    /// With the kinds swapped, each has the other type of handler, where the front-end has both; and one more link.
    Work {
        swapped: bool,
    },
    Produce,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) name: String,
    pub(crate) duty: Duty,
    pub(crate) front: Front,
    pub(crate) url: String,
    pub(crate) effects_url: String,
    /// What a producer was told, a line for each task.
    pub(crate) answers: PathBuf,
    pub(crate) seed: u64,
}

/// What the copies of this program do; anyone else returns at once.
pub(crate) fn serve() -> Outcomes {
    let Ok(orders) = std::env::var(ORDERS) else { return Ok(()) };
    let orders: Orders = serde_json::from_str(&orders)?;
    env_logger::builder().filter_module("venturi", log::LevelFilter::Info).format_timestamp_millis().init();
    let stop = CancellationToken::new();
    let ours = stop.clone();
    std::thread::spawn(move || {
        drop(std::io::stdin().read(&mut [0]));
        ours.cancel();
        std::thread::sleep(LEFT_BEHIND);
        std::process::exit(3);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Blocking clients must not be dropped inside the runtime.
    let room = Room::new(orders.effects_url.clone(), orders.name.clone());
    match (orders.duty, orders.front) {
        (Duty::Work { swapped }, Front::Threads) => tell(&work_on_threads(&orders, swapped, room, stop)?),
        (Duty::Work { swapped }, Front::Futures) => {
            tell(&runtime.block_on(work_in_futures(&orders, swapped, room.clone(), stop))?);
        }
        (Duty::Produce, Front::Threads) => produce_on_a_thread(&orders, &stop)?,
        (Duty::Produce, Front::Futures) => runtime.block_on(produce_in_a_future(&orders, &stop))?,
    }
    Ok(())
}

fn tell(report: &ShutdownReport) {
    eprintln!("{report:?}");
}

macro_rules! worker {
    ($front:ident, $orders:ident, $swapped:ident, $room:ident) => {
        venturi::$front::Worker::builder($room)
            .database(Database::new(&$orders.url)?)
            .claimed_by(&$orders.name)
            .concurrency(4)
            .connections(if $swapped { 2 } else { 1 })
            .lease(LEASE)
            .backoff(Backoff::new(Duration::from_millis(200), Duration::from_secs(1)))
            .backstop(None)
            .shutdown_timeout(Duration::from_secs(2))
    };
}

fn work_on_threads(orders: &Orders, swapped: bool, room: Room, stop: CancellationToken) -> Outcomes<ShutdownReport> {
    Ok(worker!(blocking, orders, swapped, room).register::<Errand>().register::<Exact>().build()?.run(stop)?)
}

async fn work_in_futures(
    orders: &Orders,
    swapped: bool,
    room: Room,
    stop: CancellationToken,
) -> Outcomes<ShutdownReport> {
    let worker = worker!(r#async, orders, swapped, room);
    let worker = if swapped {
        worker.register::<Exact>().register_blocking::<Errand>()
    } else {
        worker.register::<Errand>().register_blocking::<Exact>()
    };
    Ok(worker.build()?.run(stop).await?)
}

/// What a producer does next, and the tags of it.
enum Step {
    One(Errand),
    /// Later, so that others may be merged with it meanwhile.
    Keyed(Errand, Duration),
    Exact(Exact),
    Many(Vec<Errand>),
}

struct Script {
    name: String,
    dice: Dice,
    count: u64,
    answers: File,
}

impl Script {
    fn new(orders: &Orders) -> Outcomes<Self> {
        let answers = File::options().append(true).create(true).open(&orders.answers)?;
        Ok(Self { name: orders.name.clone(), dice: Dice::new(orders.seed), count: 0, answers })
    }

    fn tag(&mut self) -> String {
        self.count += 1;
        format!("{}/{}", self.name, self.count)
    }

    fn deed(&mut self) -> Deed {
        match self.dice.roll(100) {
            0..4 => Deed::Work(4_000 + self.dice.roll(1_500)),
            4..16 => Deed::Work(self.dice.roll(1_000)),
            16..19 => Deed::FailAtFirst,
            19..21 => Deed::PanicAtFirst,
            21..24 => Deed::PauseAtFirst,
            _ => Deed::Work(self.dice.roll(40)),
        }
    }

    fn errand(&mut self, key: Option<String>) -> Errand {
        Errand { tags: vec![self.tag()], deed: self.deed(), key }
    }

    fn next(&mut self) -> Step {
        match self.dice.roll(20) {
            0..7 => Step::One(self.errand(None)),
            7..13 => {
                let key = format!("key {}", self.dice.roll(3));
                Step::Keyed(self.errand(Some(key)), self.dice.millis(100, 1_500))
            }
            13..19 => Step::Exact(Exact { tags: vec![self.tag()] }),
            _ => Step::Many((0..20).map(|_| self.errand(None)).collect()),
        }
    }

    fn rest(&mut self) -> Duration {
        self.dice.millis(50, 150)
    }

    /// All lines at once, so that a kill leaves no half of them.
    fn note(&mut self, lines: &[String]) -> Outcomes {
        Ok(self.answers.write_all(lines.concat().as_bytes())?)
    }

    fn answered(&mut self, tags: &[String], answer: Result<Enqueued, Error>) -> Outcomes {
        let line = |tag| match &answer {
            Ok(stored) => format!("stored {tag} {}\n", stored.id.get()),
            Err(error) => format!("{} {tag} 0\n", said(error)),
        };
        self.note(&tags.iter().map(line).collect::<Vec<_>>())
    }

    fn answered_many(&mut self, tasks: &[Errand], answer: Result<Vec<Enqueued>, Error>) -> Outcomes {
        let (stored, in_doubt, rest) = match &answer {
            Ok(stored) => (stored.as_slice(), 0, "denied"),
            Err(error) => match error.partial() {
                Some(partial) => (partial.enqueued.as_slice(), partial.in_doubt, "denied"),
                None => (&[][..], 0, said(error)),
            },
        };
        let line = |(nth, task): (usize, &Errand)| {
            let tag = task.tags.first().map_or("", String::as_str);
            match stored.get(nth) {
                Some(stored) => format!("stored {tag} {}\n", stored.id.get()),
                None if nth < stored.len() + in_doubt => format!("unknown {tag} 0\n"),
                None => format!("{rest} {tag} 0\n"),
            }
        };
        self.note(&tasks.iter().enumerate().map(line).collect::<Vec<_>>())
    }
}

/// Any error but these two says that nothing was stored.
fn said(error: &Error) -> &'static str {
    log::info!(target: "venturi", "an enqueue ended with {:?}: {error}", error.kind());
    if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Internal) { "unknown" } else { "denied" }
}

/// The same for both front-ends; what a future waits for is awaited.
macro_rules! produce {
    ($front:ident, $orders:ident, $stop:ident, $sleep:path $(, $await:tt)*) => {{
        let database = Database::new(&$orders.url)?;
        let mut script = Script::new($orders)?;
        let queue = loop {
            if $stop.is_cancelled() {
                return Ok(());
            }
            match venturi::$front::Queue::builder(&database).timeout(PATIENCE).connect()$($await)* {
                Ok(queue) => break queue,
                Err(error) => eprintln!("not connected: {error}"),
            }
            $sleep(Duration::from_millis(200))$($await)*;
        };
        while !$stop.is_cancelled() {
            match script.next() {
                Step::One(task) => {
                    let answer = queue.enqueue(&task)$($await)*;
                    script.answered(&task.tags, answer)?;
                }
                Step::Keyed(task, delay) => {
                    let answer = queue.enqueue(Submit::new(&task).delay(delay))$($await)*;
                    script.answered(&task.tags, answer)?;
                }
                Step::Exact(task) => {
                    let answer = queue.enqueue(&task)$($await)*;
                    script.answered(&task.tags, answer)?;
                }
                Step::Many(tasks) => {
                    let answer = queue.enqueue_many(&tasks)$($await)*;
                    script.answered_many(&tasks, answer)?;
                }
            }
            $sleep(script.rest())$($await)*;
        }
        Ok(())
    }};
}

fn produce_on_a_thread(orders: &Orders, stop: &CancellationToken) -> Outcomes {
    produce!(blocking, orders, stop, std::thread::sleep)
}

async fn produce_in_a_future(orders: &Orders, stop: &CancellationToken) -> Outcomes {
    produce!(r#async, orders, stop, tokio::time::sleep, ., await)
}

// The test's side.

/// A process; killed when it is dropped.
pub(crate) struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    log: PathBuf,
}

impl Member {
    pub(crate) fn start(orders: &Orders, folder: &Path) -> Outcomes<Self> {
        let log = folder.join(format!("{}.log", orders.name));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "a_member", "--nocapture"]).env(ORDERS, serde_json::to_string(orders)?);
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, log })
    }

    pub(crate) fn signal(&self, name: &str) -> Outcomes {
        Ok(cluster::signal(self.child.id(), name)?)
    }

    pub(crate) fn has_ended(&mut self) -> Outcomes<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// What it said last.
    pub(crate) fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines.get(lines.len().saturating_sub(25)..).unwrap_or_default().join("\n")
    }

    /// Tells it to stop, and waits for its end.
    pub(crate) fn retire(&mut self, within: Duration) -> Outcomes<ExitStatus> {
        self.stdin = None;
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(format!("it did not end within {within:?}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A stopped process can be killed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
