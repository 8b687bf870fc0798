//! What no common front can ask for: a worker with both kinds of handlers, a spawner that is slow, a `run` that is
//! dropped, and a worker that is never run.

use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_lite::future;
use venturi::CancellationToken;
use venturi::r#async::{BoxFuture, Worker, WorkerBuilder};

use crate::suite::PATIENCE;
use crate::suite::front::{Front, Running};
use crate::suite::lab::{End, Lab};
use crate::suite::place::for_a_while;
use crate::suite::probe::{Brisk, Kind, Other, Plain, Probe, Step, job};
use crate::suite::stage::Stage;

const MS: Duration = Duration::from_millis(1);

fn impatient(stage: &Stage<'_>) -> WorkerBuilder<Arc<Lab>> {
    let builder = Worker::builder(Arc::clone(&stage.lab)).database(stage.place.database()).concurrency(4);
    builder.register::<Probe<Plain>>().shutdown_timeout(100 * MS)
}

/// Runs a worker beside the test.
fn run(stage: &Stage<'_>, builder: WorkerBuilder<Arc<Lab>>) -> Rc<Running> {
    let shutdown = CancellationToken::new();
    let run = builder.build().expect("a worker").run(shutdown.clone());
    let (end, ends) = channel();
    std::thread::spawn(move || end.send(future::block_on(run)));
    stage.keep(Running::new(shutdown, ends))
}

/// Runs a worker until what is returned is called, which drops its `run`.
fn droppable(builder: WorkerBuilder<Arc<Lab>>) -> impl FnOnce() {
    let run = builder.build().expect("a worker").run(CancellationToken::new());
    let dropped = CancellationToken::new();
    let until = dropped.cancelled();
    let thread = std::thread::spawn(|| future::block_on(future::or(async { drop(run.await) }, until)));
    move || {
        dropped.cancel();
        thread.join().expect("no panic");
    }
}

/// C-20: the spawner takes twice as long as the handler may, and that is not the handler's fault.
pub(crate) fn a_time_out_counts_from_the_start_of_the_handler(front: &dyn Front) {
    let stage = Stage::new(front);
    let slow = |run: BoxFuture| {
        std::thread::spawn(|| {
            for_a_while(600 * MS, "twice as long as the handler may take");
            future::block_on(run);
        });
    };
    let worker = run(&stage, impatient(&stage).register::<Probe<Brisk>>().spawner(slow));
    let (id, row) = stage.finish(job("brisk").of(Kind::Brisk));
    assert_eq!((row.status.as_str(), row.failure_count, stage.place.events(id).len()), ("completed", 0, 1));
    assert_eq!(worker.stop().timed_out, 0);
}

/// C-26: a spawner may be as slow as it likes.
pub(crate) fn a_future_that_has_not_begun_when_the_time_is_over_is_released_and_never_begins(front: &dyn Front) {
    let stage = Stage::new(front);
    let queued = Arc::<Mutex<Vec<BoxFuture>>>::default();
    let queue = Arc::clone(&queued);
    let spawner = move |run: BoxFuture| queue.lock().expect("no panic").push(run);
    let worker = run(&stage, impatient(&stage).spawner(spawner));
    let id = stage.enqueue(job("queued"));
    stage.place.wait_status(id, "claimed");
    let report = worker.stop();
    assert_eq!((report.released, stage.place.events(id)), (1, vec!["released".to_owned()]), "{report:?}");
    queued.lock().expect("no panic").drain(..).for_each(future::block_on);
    assert_eq!((stage.starts("queued"), stage.place.job(id).failure_count), (0, 0));
}

/// The handlers' futures are dropped with `run`, and their jobs released as soon as what they left behind has ended.
pub(crate) fn what_has_stopped_is_released_within_a_renewal_after_run_was_dropped(front: &dyn Front) {
    let stage = Stage::new(front);
    let lease = Duration::from_secs(15);
    let drop_run = droppable(impatient(&stage).lease(lease));
    let free = stage.enqueue(job("free").waiting("never"));
    let held = stage.enqueue(job("held").run([Step::Hold("let go".to_owned()), Step::Wait("never".to_owned())]));
    stage.wait_starts(2);
    let told = Instant::now();
    drop_run();
    assert!(stage.look(|book| book.runs.iter().all(|run| run.end == Some(End::Unwound))));
    stage.place.wait_status(free, "pending");
    assert!(told.elapsed() < lease / 3, "{:?}", told.elapsed());
    assert_eq!(stage.place.job(held).status, "claimed");
    let let_go = Instant::now();
    stage.open("let go");
    stage.place.wait_status(held, "pending");
    assert!(let_go.elapsed() < lease / 3, "{:?}", let_go.elapsed());
    assert_eq!([free, held].map(|id| stage.place.events(id)), [["released"], ["released"]]);
    stage.place.wait_no_backends();
}

/// Threads cannot be dropped, so the worker stays until they have ended, although nobody asks for its report.
pub(crate) fn a_dropped_run_still_settles_what_its_threads_return(front: &dyn Front) {
    let stage = Stage::new(front);
    let drop_run = droppable(impatient(&stage).register_blocking::<Probe<Other>>().lease(Duration::from_secs(3)));
    let id = stage.enqueue(job("thread").of(Kind::Other).waiting("end"));
    stage.wait_start("thread", 1);
    drop_run();
    for_a_while(Duration::from_secs(4), "longer than its lease");
    let row = stage.place.job(id);
    assert!(row.lease_left.is_some_and(|left| left > 0.0), "it is renewed: {row:?}");
    stage.open("end");
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.place.events(id), ["completed"]);
    stage.place.wait_no_backends();
}

pub(crate) fn a_worker_that_is_dropped_unrun_does_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("untouched"));
    let lab = || Arc::clone(&stage.lab);
    let database = || stage.place.database();
    drop(Worker::builder(lab()).database(database()).register::<Probe<Plain>>().build().expect("a worker"));
    drop(venturi::blocking::Worker::builder(lab()).database(database()).register::<Probe<Plain>>().build());
    let worker = Worker::builder(lab()).database(database()).register::<Probe<Plain>>().build().expect("a worker");
    let unpolled = worker.run(CancellationToken::new());
    drop(unpolled);
    for_a_while(300 * MS, "a worker that connects would be connected by now");
    assert_eq!((stage.place.backends("true").len(), stage.starts("untouched")), (0, 0));
    assert_eq!((stage.place.job(id).run_count, Arc::strong_count(&stage.lab)), (0, 1), "not even the state is held");
}

/// C-41: the request may come before the run, and twice.
pub(crate) fn a_token_that_was_cancelled_before_the_run_stops_it_at_once(front: &dyn Front) {
    for threads in [false, true] {
        let stage = Stage::new(front);
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let (send, ends) = channel();
        let (lab, database, token) = (Arc::clone(&stage.lab), stage.place.database(), shutdown.clone());
        std::thread::spawn(move || {
            let report = if threads {
                let builder = venturi::blocking::Worker::builder(lab).database(database);
                builder.register::<Probe<Plain>>().build().and_then(|worker| worker.run(token))
            } else {
                let builder = Worker::builder(lab).database(database).register::<Probe<Plain>>();
                builder.build().and_then(|worker| future::block_on(worker.run(token)))
            };
            send.send(report)
        });
        shutdown.cancel();
        ends.recv_timeout(PATIENCE).expect("it ends").expect("a report");
    }
}
