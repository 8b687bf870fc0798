#![allow(clippy::disallowed_methods, reason = "tests wait with a deadline")]

use std::collections::BTreeSet;
use std::panic::panic_any;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use super::super::runner;
use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::handler::BlockingHandler;
use crate::job::ClaimedJob;
use crate::{Context, Outcome, Priority, Task, TaskError};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Seen {
    /// Jobs in the order in which their handlers started, with the thread.
    started: Mutex<Vec<(i64, String)>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    /// Cancelled to let the handlers that wait go on.
    gate: CancellationToken,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Job {
    Quick,
    /// Until the gate opens or the run is cancelled.
    Wait,
    PanicWithBomb,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

impl Task for Job {
    const KIND: &'static str = "job";
    type Carry = ();
}

impl BlockingHandler<Arc<Seen>> for Job {
    fn handle(&self, context: &mut Context<()>, seen: &Arc<Seen>) -> Result<Outcome, TaskError> {
        let name = thread::current().name().unwrap_or_default().to_owned();
        seen.started.lock().unwrap().push((context.job_id().get(), name));
        let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_running.fetch_max(running, Ordering::SeqCst);
        if matches!(self, Self::Wait) {
            while !context.is_cancelled() && !seen.gate.wait_timeout(Duration::from_millis(1)) {}
        }
        seen.running.fetch_sub(1, Ordering::SeqCst);
        if matches!(self, Self::PanicWithBomb) {
            panic_any(Bomb);
        }
        Ok(Outcome::completed())
    }
}

struct Rig {
    handlers: Pool<Arc<Seen>>,
    seen: Arc<Seen>,
    inputs: Receiver<Input>,
    shutdown: CancellationToken,
}

fn pool(most: usize) -> Rig {
    let runners = vec![Some(runner::run::<Arc<Seen>, Job> as Runner<Arc<Seen>>)];
    let (seen, shutdown) = (Arc::new(Seen::default()), CancellationToken::new());
    let (reports, inputs) = unbounded();
    let handlers = Pool::new(
        runners,
        Arc::new(Contained::new(Arc::clone(&seen))),
        move |input| drop(reports.send(input)),
        shutdown.clone(),
        most,
        Home::nowhere(),
    );
    Rig { handlers, seen, inputs, shutdown }
}

fn id(job: i64) -> RunId {
    RunId { job, run: 1 }
}

impl Rig {
    fn start(&mut self, job: i64, task: Job) {
        self.start_reported(job, task, false);
    }

    fn start_reported(&mut self, job: i64, task: Job, report_start: bool) {
        let job = ClaimedJob {
            id: id(job),
            kind: Job::KIND.to_owned(),
            priority: Priority::Normal,
            created_at: UNIX_EPOCH,
            visible_at: UNIX_EPOCH,
            claimed_at: UNIX_EPOCH,
            trace: None,
            failure_count: 0,
            payload: to_raw_value(&task).unwrap(),
            carry: None,
        };
        self.handlers.start(Start { id: job.id, kind: 0, job, report_start });
    }

    fn input(&self) -> Input {
        self.inputs.recv_timeout(PATIENCE).unwrap()
    }

    /// The next report, as the coordinator takes it in.
    fn finished(&mut self) -> (i64, Verdict) {
        match self.input() {
            Input::Finished(id, report) => {
                self.handlers.forget(id);
                (id.job, report.verdict)
            }
            other => panic!("a report was expected, not {other:?}"),
        }
    }

    fn until_running(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.running.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < deadline, "{count} handlers are running");
            thread::yield_now();
        }
    }

    fn started(&self) -> Vec<i64> {
        self.seen.started.lock().unwrap().iter().map(|(job, _)| *job).collect()
    }

    fn threads(&self) -> BTreeSet<String> {
        self.seen.started.lock().unwrap().iter().map(|(_, name)| name.clone()).collect()
    }
}

const COMPLETED: Verdict = Verdict::Completed { note: None };

#[test]
fn there_are_never_more_threads_than_slots() {
    let mut pool = pool(3);
    for round in 0..50 {
        (0..3).for_each(|slot| pool.start(3 * round + slot, Job::Quick));
        (0..3).for_each(|_| assert_eq!(pool.finished().1, COMPLETED));
    }
    assert!(pool.threads().iter().all(|name| name.starts_with("venturi-handler-")), "{:?}", pool.threads());
    assert!(pool.threads().len() <= 3 && pool.seen.most_running.load(Ordering::SeqCst) <= 3);
}

#[test]
fn every_run_starts_at_once_while_there_are_slots() {
    let mut pool = pool(4);
    (0..4).for_each(|job| pool.start(job, Job::Wait));
    pool.until_running(4);
    pool.seen.gate.cancel();
    (0..4).for_each(|_| assert_eq!(pool.finished().1, COMPLETED));
}

#[test]
fn an_idle_thread_is_reused_before_a_new_one_is_started() {
    let mut pool = pool(8);
    for job in 0..20 {
        pool.start(job, Job::Quick);
        pool.finished();
    }
    assert_eq!(pool.threads(), BTreeSet::from(["venturi-handler-1".to_owned()]));
}

#[test]
fn a_thread_survives_a_panic_whose_payload_panics_when_dropped() {
    let mut pool = pool(1);
    pool.start(1, Job::PanicWithBomb);
    assert!(matches!(pool.finished(), (1, Verdict::Panicked(_))));
    pool.start(2, Job::Quick);
    assert_eq!(pool.finished(), (2, COMPLETED));
    assert_eq!(pool.threads().len(), 1);
}

#[test]
fn a_run_that_was_taken_back_never_starts() {
    let mut pool = pool(1);
    pool.start(1, Job::Wait);
    pool.until_running(1);
    pool.start(2, Job::Quick);
    pool.handlers.revoke(id(2));
    assert_eq!(pool.finished(), (2, Verdict::NotStarted));
    pool.seen.gate.cancel();
    assert_eq!(pool.finished(), (1, COMPLETED));
    pool.start(3, Job::Quick);
    assert_eq!(pool.finished(), (3, COMPLETED));
    assert_eq!(pool.started(), [1, 3]);
}

#[test]
fn a_run_that_has_started_cannot_be_taken_back() {
    let mut pool = pool(1);
    pool.start(1, Job::Wait);
    pool.until_running(1);
    pool.handlers.revoke(id(1));
    pool.seen.gate.cancel();
    assert_eq!(pool.finished(), (1, COMPLETED));
    assert!(pool.inputs.try_recv().is_err(), "it is reported once");
}

#[test]
fn starting_and_taking_back_decide_once_between_threads() {
    for _ in 0..1_000 {
        let ticket = Arc::new(Ticket::default());
        let other = Arc::clone(&ticket);
        let starts = thread::Builder::new().spawn(move || other.start()).unwrap();
        let revoked = ticket.revoke();
        assert_ne!(starts.join().unwrap(), revoked);
    }
}

#[test]
fn a_start_is_reported_only_when_it_is_asked_for() {
    let mut pool = pool(1);
    pool.start_reported(1, Job::Quick, true);
    assert!(matches!(pool.input(), Input::Started(run) if run == id(1)));
    assert_eq!(pool.finished(), (1, COMPLETED));
}

#[test]
fn one_run_is_cancelled_alone_and_all_with_the_shutdown() {
    let mut pool = pool(2);
    pool.start(1, Job::Wait);
    pool.start(2, Job::Wait);
    pool.until_running(2);
    pool.handlers.cancel(id(1), CancelReason::ClaimLost);
    assert_eq!(pool.finished(), (1, COMPLETED));
    pool.shutdown.cancel();
    assert_eq!(pool.finished(), (2, COMPLETED));
}

#[test]
fn handlers_are_told_to_wind_down_when_the_coordinator_is_gone() {
    let mut pool = pool(1);
    pool.start(1, Job::Wait);
    pool.until_running(1);
    drop(pool.handlers);
    assert!(matches!(pool.inputs.recv_timeout(PATIENCE), Ok(Input::Finished(run, _)) if run == id(1)));
    // The thread held the last sender.
    assert!(pool.inputs.recv_timeout(PATIENCE).is_err_and(|error| error.is_disconnected()));
}

#[test]
fn ending_waits_for_idle_threads_and_leaves_a_busy_one_behind() {
    let mut idle = pool(2);
    idle.start(1, Job::Quick);
    idle.finished();
    let seen = Arc::downgrade(&idle.seen);
    drop(idle.seen);
    idle.handlers.end_by(Instant::now() + PATIENCE);
    assert!(seen.upgrade().is_none(), "no thread holds the state any more");

    let mut busy = pool(1);
    busy.shutdown = CancellationToken::new();
    busy.start(1, Job::Wait);
    busy.until_running(1);
    // The run is not known any more, so nothing cancels it.
    busy.handlers.forget(id(1));
    busy.handlers.end_by(Instant::now() + Duration::from_millis(20));
    assert_eq!(busy.seen.running.load(Ordering::SeqCst), 1);
    busy.seen.gate.cancel();
}
