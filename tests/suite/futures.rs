//! What only the async front-end has: a spawner, a future that can be dropped, a handler that never yields.

use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;
use venturi::r#async::{BoxFuture, Queue, Worker, WorkerBuilder};
use venturi::{CancellationToken, ErrorKind, LeftReason};

use super::front::{Front, Running, WorkerSpec};
use super::lab::Lab;
use super::place::eventually;
use super::probe::{Kind, Other, Plain, Probe, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

fn worker(stage: &Stage<'_>) -> WorkerBuilder<Arc<Lab>> {
    Worker::builder(Arc::clone(&stage.lab)).database(stage.place.database()).register::<Probe<Plain>>().concurrency(1)
}

/// Nobody runs anything, so the worker gives up; but no job suffers for it.
fn gives_up(front: &dyn Front, spawner: impl Fn(BoxFuture) + Send + Sync + 'static) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("thrown away"));
    let run = worker(&stage).spawner(spawner).build().expect("a worker").run(CancellationToken::new());
    let error = future::block_on(run).expect_err("nothing runs");
    assert_eq!(error.kind(), ErrorKind::Spawner, "{error}");
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.failure_count, stage.starts("thrown away")), ("pending", 0, 0));
    assert!(stage.place.events(id).iter().all(|event| event == "released"));
}

pub(crate) fn a_spawner_that_throws_runs_away_ends_the_worker(front: &dyn Front) {
    gives_up(front, drop);
}

pub(crate) fn a_spawner_that_panics_ends_the_worker(front: &dyn Front) {
    gives_up(front, |_| panic!("no room"));
}

pub(crate) fn a_spawner_that_fails_now_and_then_costs_no_job_a_failure(front: &dyn Front) {
    let stage = Stage::new(front);
    let turn = std::sync::atomic::AtomicU32::new(0);
    let spawner = move |run: BoxFuture| {
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1 {
            drop(std::thread::spawn(|| future::block_on(run)));
        }
    };
    let id = stage.enqueue(job("second try"));
    let shutdown = CancellationToken::new();
    let run = worker(&stage).spawner(spawner).build().expect("a worker").run(shutdown.clone());
    let thread = std::thread::spawn(move || future::block_on(run));
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 0));
    assert_eq!(stage.place.events(id), ["released", "completed"]);
    shutdown.cancel();
    thread.join().expect("no panic").expect("a report");
}

/// Both with the handler inside the dropped future, and with the handler on an executor of its own.
pub(crate) fn a_worker_whose_future_is_dropped_gives_its_jobs_back(front: &dyn Front) {
    for spawning in [false, true] {
        let stage = Stage::new(front);
        let id = stage.enqueue(job("abandoned").waiting("never"));
        let mut builder = worker(&stage);
        if spawning {
            builder = builder.spawner(|run: BoxFuture| drop(std::thread::spawn(|| future::block_on(run))));
        }
        let run = builder.build().expect("a worker").run(CancellationToken::new());
        let dropped = CancellationToken::new();
        let until = dropped.clone();
        let thread =
            std::thread::spawn(move || future::block_on(future::or(async { drop(run.await) }, until.cancelled())));
        stage.wait_start("abandoned", 1);
        dropped.cancel();
        thread.join().expect("no panic");
        let row = stage.place.wait_status(id, "pending");
        assert_eq!((row.failure_count, stage.place.events(id)), (0, vec!["released".to_owned()]));
        stage.place.wait_no_backends();
    }
}

/// It has a thread of its own, and keeps it; `run` returns in its time all the same and says what is left.
pub(crate) fn a_future_that_never_yields_is_left_claimed(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { shutdown_timeout: Some(100 * MS), abort_grace: Some(400 * MS), ..WorkerSpec::serial() };
    let running = stage.work(&spec);
    let id = stage.enqueue(job("deaf").run([Step::Block(Duration::from_secs(8))]));
    stage.wait_start("deaf", 1);
    let report = running.stop();
    let left: Vec<_> = report.left_claimed.iter().map(|left| (left.job.get(), left.kind, left.reason)).collect();
    assert_eq!(left, [(id, "plain", LeftReason::NotStopped)]);
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.failure_count), ("claimed", 0));
}

pub(crate) fn one_worker_runs_futures_and_threads_each_by_its_own_rules(front: &dyn Front) {
    let stage = Stage::new(front);
    let shutdown = CancellationToken::new();
    let builder = worker(&stage).register_blocking::<Probe<Other>>().concurrency(2).shutdown_timeout(200 * MS);
    let run = builder.build().expect("a worker").run(shutdown.clone());
    let (end, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || end.send(future::block_on(run)));
    let running = stage.keep(Running::new(shutdown, ends));
    let future = stage.enqueue(job("future").waiting("end"));
    let thread = stage.enqueue(job("thread").of(Kind::Other).waiting("end"));
    stage.wait_starts(2);
    running.tell_to_stop();
    // The future is dropped when the time is over, the thread is waited for.
    stage.place.wait_status(future, "pending");
    assert_eq!((stage.place.job(thread).status.as_str(), running.has_ended()), ("claimed", false));
    stage.open("end");
    let report = running.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.settled, report.released, report.left_claimed.len()), (1, 1, 0), "{report:?}");
    assert_eq!(stage.place.job(thread).status, "completed");
    assert_eq!((stage.place.events(future), stage.starts("future")), (vec!["released".to_owned()], 1));
}

pub(crate) fn an_enqueue_that_is_dropped_may_be_stored_and_one_that_never_began_is_not(front: &dyn Front) {
    let stage = Stage::new(front);
    let live = || stage.place.number("SELECT count(*) FROM live");
    let queue = future::block_on(Queue::connect(&stage.place.database())).expect("a queue");
    let task = |tag: String| Probe::<Plain>::from(job(tag).script);
    drop(queue.enqueue(task("never".to_owned())));
    let begun = Box::pin(queue.enqueue(task("begun".to_owned())));
    assert!(future::block_on(future::poll_once(begun)).is_none(), "the answer takes its time");
    eventually("the job is stored all the same", || (live() == 1).then_some(()));
    let many = Box::pin(queue.enqueue_many((0..50_000).map(|nth| task(format!("{nth}")))));
    assert!(future::block_on(future::poll_once(many)).is_none(), "only the first batch has been sent");
    eventually("the first batch is stored", || (live() > 1).then_some(()));
    // What is asked now comes after all that was asked before.
    future::block_on(queue.enqueue(task("last".to_owned()))).expect("stored");
    assert_eq!(live(), 10_002);
}
