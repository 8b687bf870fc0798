//! A panic anywhere in the application's code costs its run, and nothing else.

use std::time::Duration;

use venturi::{Error, ErrorKind};

use super::front::{Front, Handlers, Job, WorkerSpec};
use super::probe::{Blast, Kind, Step, job};
use super::stage::Stage;

/// The first run goes wrong; the second, half a second later at the most, does not.
fn survives(front: &dyn Front, script: Job, note: &str) {
    let stage = Stage::new(front);
    let kinds = [script.kind, Kind::Third];
    let worker = stage.work(&WorkerSpec { concurrency: Some(1), ..WorkerSpec::of(&kinds) });
    // The lease of a quarter of an hour cannot be what brings it back.
    let (id, row) = stage.finish(script.run([Step::Complete]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1));
    let first = &stage.place.journal(id)[0];
    assert_eq!(
        (first.event.as_str(), first.note.as_deref(), first.attachment.as_deref()),
        ("retried", Some(note), None)
    );
    assert_eq!(stage.look(|book| book.runs[1].carry), 0, "the retry starts from the carry before the panic");
    let another = stage.enqueue(job("another").of(Kind::Third));
    stage.place.wait_status(another, "completed");
    assert!(!worker.has_ended());
    let report = worker.stop();
    assert!(report.left_claimed.is_empty() && report.settled + report.timed_out == 3, "{report:?}");
}

/// Changes carry and attachment, which the panic undoes.
fn exploding(blast: Blast) -> Job {
    job("exploding").run([Step::Add(4), Step::Attach("lost".to_owned()), Step::Panic(blast)])
}

pub(crate) fn a_handler_may_panic_with_a_text(front: &dyn Front) {
    survives(front, exploding(Blast::Text), "panicked: a plain text");
}

pub(crate) fn a_handler_may_panic_with_a_formatted_text(front: &dyn Front) {
    survives(front, exploding(Blast::Formatted), "panicked: text number 7");
}

pub(crate) fn a_handler_may_panic_with_something_that_is_not_text(front: &dyn Front) {
    survives(front, exploding(Blast::Number), "panicked: a value that is not text");
}

pub(crate) fn a_handler_may_panic_with_something_that_panics_when_dropped(front: &dyn Front) {
    survives(front, exploding(Blast::Bomb), "panicked: a value that is not text");
}

pub(crate) fn a_handler_may_panic_before_it_has_begun(front: &dyn Front) {
    survives(front, job("exploding").run([Step::Panic(Blast::AtOnce)]), "panicked: at once");
}

pub(crate) fn a_handler_may_panic_after_it_has_waited(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::serial());
    let script = job("late").run([Step::Wait("go".to_owned()), Step::Panic(Blast::Text)]).run([Step::Complete]);
    let id = stage.enqueue(script);
    stage.wait_start("late", 1);
    stage.open("go");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
}

pub(crate) fn a_task_may_panic_when_it_is_dropped(front: &dyn Front) {
    survives(front, job("dropped").run([Step::Add(4), Step::DropPanics]), "panicked: dropping the task");
}

pub(crate) fn a_carry_may_panic_when_it_is_written(front: &dyn Front) {
    let script = job("stubborn").of(Kind::Stubborn).run([Step::Add(3), Step::Pause(Duration::ZERO)]);
    survives(front, script, "panicked: writing an odd one");
}

pub(crate) fn a_carry_may_panic_when_it_is_dropped(front: &dyn Front) {
    let script = job("fragile").of(Kind::Fragile).run([Step::Add(3), Step::Pause(Duration::ZERO)]);
    survives(front, script, "panicked: dropping an odd one");
}

pub(crate) fn an_error_may_panic_when_it_is_dropped(front: &dyn Front) {
    survives(front, job("charged").run([Step::Add(4), Step::FailCharged]), "panicked: dropping a charge");
}

pub(crate) fn what_a_handler_holds_may_panic_when_it_is_dropped(front: &dyn Front) {
    survives(front, job("charged").run([Step::Add(4), Step::Charge]), "panicked: dropping a charge");
    if front.handlers() == Handlers::Threads {
        return; // Nobody drops what runs on a thread.
    }
    let stuck = job("stuck").of(Kind::Brisk).run([Step::Charge, Step::Wait("never".to_owned())]);
    survives(front, stuck, "timed out after 300ms");
}

/// State, observer and layers are dropped with the worker; the report comes all the same.
pub(crate) fn what_a_worker_was_given_may_panic_when_it_is_dropped(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { charged: true, surrounded: true, ..WorkerSpec::default() };
    let worker = stage.work(&spec);
    let (_, row) = stage.finish(job("a"));
    assert_eq!((row.status.as_str(), row.run_count), ("completed", 1));
    let report = worker.stop();
    assert!(report.left_claimed.is_empty() && report.settled == 1, "{report:?}");
    let refused = front.start(&WorkerSpec { kinds: Vec::new(), ..spec }, stage.place.database(), stage.lab.clone());
    assert_eq!(refused.err().expect("nothing is registered").kind(), ErrorKind::NoKinds);
}

/// Each run of such a job panics, until the backstop.
fn dies_of(front: &dyn Front, script: Job, note: &str) {
    let stage = Stage::new(front);
    let kinds = [script.kind, Kind::Third];
    stage.work(&WorkerSpec { backstop: Some(Some(2)), ..WorkerSpec::of(&kinds) });
    let (_, row) = stage.finish(script);
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("dead", 2, 2));
    assert_eq!(row.note.as_deref(), Some(note));
    let another = stage.enqueue(job("another").of(Kind::Third));
    stage.place.wait_status(another, "completed");
}

pub(crate) fn the_default_of_a_carry_may_panic(front: &dyn Front) {
    dies_of(front, job("no default").of(Kind::NoDefault), "panicked: no default");
}

pub(crate) fn decoding_a_task_may_panic(front: &dyn Front) {
    dies_of(front, job("trap").whose_decoding_panics(), "panicked: decoding sprang the trap");
}

pub(crate) fn a_panic_is_dead_at_once_if_the_policy_says_so(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { panics_are_final: true, ..WorkerSpec::default() });
    let (id, row) = stage.finish(exploding(Blast::Text));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("dead", 1, 1));
    assert_eq!(stage.place.events(id), ["dead"]);
    assert_eq!((row.carry, row.attachment), (None, None));
}

/// The first failures are free of any wait, the third panic is not.
pub(crate) fn a_panic_is_retried_with_backoff(front: &dyn Front) {
    let stage = Stage::new(front);
    let backoff = Some((Duration::from_secs(600), Duration::from_secs(600)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::default() });
    let id = stage.enqueue(exploding(Blast::Text));
    let row = stage.place.wait_job(id, "waiting", |row| row.failure_count == 3);
    assert!(row.status == "pending" && row.due_in > 500.0, "{row:?}");
}

pub(crate) fn one_panic_of_many_runs_at_once_disturbs_none_of_the_others(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { concurrency: Some(3), ..WorkerSpec::default() });
    let quiet = stage.enqueue_many(Kind::Plain, (0..2).map(|_| job("quiet").waiting("end")));
    stage.wait_start("quiet", 2);
    let loud = stage.enqueue(exploding(Blast::Bomb).run([Step::Complete]));
    stage.place.wait_status(loud, "completed");
    stage.open("end");
    for id in quiet {
        assert_eq!(stage.place.wait_status(id, "completed").run_count, 1);
    }
}

pub(crate) fn a_policy_that_panics_is_found_when_the_worker_is_built(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec::of(&[Kind::Plain, Kind::Moody]);
    let error: Error = match front.start(&spec, stage.place.database(), stage.lab.clone()) {
        Ok(_) => panic!("a worker was built"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("no lease today"), "{error}");
}
