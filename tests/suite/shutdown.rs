//! Graceful shutdown.

use std::time::{Duration, Instant};

use venturi::CancelReason;

use super::front::{Front, WorkerSpec};
use super::lab::End;
use super::place::for_a_while;
use super::probe::{Kind, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

pub(crate) fn an_idle_worker_stops_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    // Neither of these can be what ends it.
    let hour = Some(Duration::from_secs(3_600));
    let worker = stage.work_idle(&WorkerSpec { poll_max: hour, shutdown_timeout: hour, ..WorkerSpec::default() });
    let report = worker.stop();
    assert_eq!((report.settled, report.released, report.left_claimed.len()), (0, 0, 0));
}

pub(crate) fn a_worker_that_is_told_to_stop_before_it_starts_runs_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("untouched"));
    let worker = front.start(&WorkerSpec::default(), stage.place.database(), stage.lab.clone()).expect("a worker");
    worker.stop();
    let row = stage.place.job(id);
    // It may have been quick; but whatever it began is settled or given back.
    assert!(matches!(row.status.as_str(), "pending" | "completed"), "{row:?}");
}

pub(crate) fn a_handler_that_heeds_the_signal_pauses_and_loses_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let first = stage.work(&WorkerSpec::serial());
    let script = job("careful").run([Step::Add(11), Step::WaitForSignal, Step::Pause(Duration::ZERO)]);
    let id = stage.enqueue(script.run([Step::Complete]));
    stage.wait_start("careful", 1);
    let report = first.stop();
    assert_eq!((report.settled, report.released), (1, 0), "{report:?}");
    let run = stage.look(|book| book.of("careful")[0].clone());
    assert_eq!((run.cancelled, run.end), (Some(CancelReason::Shutdown), Some(End::Returned)));
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("pending", 1, 0));
    assert_eq!(row.carry.as_deref(), Some("11"));
    stage.work(&WorkerSpec::serial());
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.look(|book| book.of("careful")[1].carry), 11);
    assert_eq!(stage.place.events(id), ["paused", "completed"]);
}

pub(crate) fn a_handler_may_ask_for_the_signal_instead_of_waiting_for_it(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::serial());
    let id = stage.enqueue(job("computing").run([Step::Add(5), Step::AskForSignal, Step::Pause(Duration::ZERO)]));
    stage.wait_start("computing", 1);
    assert_eq!(worker.stop().settled, 1);
    assert_eq!(stage.look(|book| book.of("computing")[0].cancelled), Some(CancelReason::Shutdown));
    assert_eq!((stage.place.job(id).carry.as_deref(), stage.place.events(id)), (Some("5"), vec!["paused".to_owned()]));
}

pub(crate) fn a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { concurrency: Some(2), ..WorkerSpec::default() });
    let going = stage.enqueue(job("going").run([Step::WaitForSignal, Step::Wait("end".to_owned())]));
    stage.wait_start("going", 1);
    worker.tell_to_stop();
    stage.wait("the signal", |book| book.of("going")[0].cancelled);
    let waiting = stage.enqueue(job("waiting"));
    // What the first run does after the signal takes as long as it takes, and one more job finds a free slot.
    let other = stage.work(&WorkerSpec::of(&[Kind::Other]));
    let seen = stage.enqueue(job("seen").of(Kind::Other));
    stage.place.wait_status(seen, "completed");
    assert_eq!(stage.starts("waiting"), 0);
    assert!(!worker.has_ended());
    stage.open("end");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    // A claim that was on its way when the worker was told to stop may have brought the other job; then it went back.
    assert!(report.settled == 1 && report.released <= 1, "{report:?}");
    assert_eq!(stage.place.job(going).status, "completed");
    assert_eq!((stage.place.job(waiting).status.as_str(), stage.starts("waiting")), ("pending", 0));
    other.stop();
}

/// A future is dropped when its time is over, and its job released. A thread cannot be stopped, so it is waited for.
pub(crate) fn a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped(front: &dyn Front) {
    let stage = Stage::new(front);
    let first = stage.work(&WorkerSpec { shutdown_timeout: Some(150 * MS), ..WorkerSpec::serial() });
    let id = stage.enqueue(job("deaf").run([Step::Add(1), Step::Wait("end".to_owned())]).run([Step::Complete]));
    stage.wait_start("deaf", 1);
    stage.work_idle(&WorkerSpec { concurrency: Some(1), ..WorkerSpec::without_polls() });
    let before = Instant::now();
    first.tell_to_stop();
    if stage.on_threads() {
        for_a_while(500 * MS, "its time to wind down is over");
        assert!(!first.has_ended());
        assert_eq!(stage.place.job(id).status, "claimed");
        stage.open("end");
        let report = first.end_within(super::PATIENCE).expect("a report");
        assert_eq!((report.settled, report.released), (1, 0), "{report:?}");
        assert_eq!((stage.place.events(id), stage.starts("deaf")), (vec!["completed".to_owned()], 1));
        return;
    }
    let report = first.end_within(super::PATIENCE).expect("a report");
    assert!(before.elapsed() >= 150 * MS, "it had its time");
    assert_eq!((report.settled, report.released), (0, 1), "{report:?}");
    // The other worker takes it at once, from the carry before.
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 0), "a release is no failure");
    let runs = stage.look(|book| book.of("deaf"));
    assert_eq!((runs[0].end, runs[1].carry), (Some(End::Unwound), 0));
    assert_eq!(stage.place.events(id), ["released", "completed"]);
}

pub(crate) fn a_stopped_worker_leaves_no_connection(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work_idle(&WorkerSpec::default());
    stage.assert_works("before");
    worker.stop();
    stage.place.wait_no_backends();
}

pub(crate) fn a_worker_without_a_server_stops_when_it_is_told_to(front: &dyn Front) {
    let stage = Stage::new(front);
    let database = venturi::Database::new("postgres://nobody@127.0.0.1:1/nothing").expect("a proper DSN");
    let worker = front.start(&WorkerSpec::default(), database, stage.lab.clone()).expect("a worker");
    for_a_while(200 * MS, "it has found that nobody answers");
    assert!(!worker.has_ended(), "a server may still come");
    let report = worker.stop();
    assert!(report.left_claimed.is_empty());
}

/// The drain has its own results to store, and its connection is cut.
pub(crate) fn a_stopping_worker_whose_connections_are_cut_still_stores_its_results(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::default());
    let id = stage.enqueue(job("going").waiting("end"));
    stage.wait_start("going", 1);
    worker.tell_to_stop();
    stage.place.terminate(&stage.place.backends("true"));
    stage.open("end");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.settled, report.left_claimed.len()), (1, 0), "{report:?}");
    assert_eq!(stage.place.job(id).status, "completed");
}

/// Which signals this process handles, as the kernel says.
fn handled_signals() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    status.lines().find(|line| line.starts_with("SigCgt")).expect("the signals that are caught").to_owned()
}

pub(crate) fn no_signal_handler_is_installed(front: &dyn Front) {
    let before = handled_signals();
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::default());
    assert_eq!(handled_signals(), before);
}
