//! Cancelling, requeueing and pausing through the queue.

use std::thread;
use std::time::{Duration, Instant};

use venturi::{CancelOutcome, CancelReason, ErrorKind, Event, JobFilter, JobStatus, RequeueOutcome};

use super::front::{Front, WorkerSpec};
use super::lab::End;
use super::place::{eventually, for_a_while};
use super::probe::{Blast, Kind, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

pub(crate) fn a_pending_job_is_cancelled_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let ready = stage.enqueue(job("ready"));
    let later = stage.enqueue(job("later").delayed(Duration::from_secs(3_600)));
    for id in [ready, later] {
        assert_eq!(stage.queue().cancel(id).expect("an answer"), CancelOutcome::Cancelled);
        assert_eq!(stage.queue().cancel(id).expect("an answer"), CancelOutcome::AlreadyFinished);
        let row = stage.place.job(id);
        assert_eq!((row.status.as_str(), row.run_count, row.claimed_by), ("cancelled", 0, None));
        assert_eq!(stage.place.events(id), ["cancelled"]);
    }
    for nobody in [0, -1, i64::MIN, i64::MAX] {
        assert_eq!(stage.queue().cancel(nobody).expect("an answer"), CancelOutcome::NotFound);
        assert_eq!(stage.queue().requeue(nobody).expect("an answer"), RequeueOutcome::NotFound);
    }
    stage.work(&WorkerSpec::default());
    stage.assert_works("another");
    assert_eq!(stage.order(), ["another"]);
}

pub(crate) fn a_running_job_hears_within_a_second_that_it_shall_end(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let heeds = stage.enqueue(job("heeds").run([Step::Add(1), Step::WaitForSignal, Step::Pause(Duration::ZERO)]));
    stage.wait_start("heeds", 1);
    let before = Instant::now();
    assert_eq!(stage.queue().cancel(heeds).expect("an answer"), CancelOutcome::Requested);
    let row = stage.place.wait_status(heeds, "cancelled");
    assert!(before.elapsed() < Duration::from_secs(20), "the lease of 15 minutes has nothing to do with it");
    assert_eq!((row.run_count, row.failure_count), (1, 0));
    assert_eq!(stage.place.events(heeds), ["cancelled"]);
    assert_eq!(stage.wait_start("heeds", 1).cancelled, Some(CancelReason::Requested));
}

pub(crate) fn a_job_that_completes_although_it_is_cancelled_is_completed(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let completes = stage.enqueue(job("completes").run([Step::WaitForSignal, Step::Complete]));
    let fails = stage.enqueue(job("fails").run([Step::WaitForSignal, Step::Fail("no".to_owned())]));
    stage.wait_start("completes", 1);
    stage.wait_start("fails", 1);
    assert_eq!(stage.queue().cancel(completes).expect("an answer"), CancelOutcome::Requested);
    assert_eq!(stage.queue().cancel(fails).expect("an answer"), CancelOutcome::Requested);
    stage.place.wait_status(completes, "completed");
    let row = stage.place.wait_status(fails, "cancelled");
    assert!(row.note.is_some_and(|note| note.contains("no")), "what it said is kept");
    assert_eq!(stage.starts("fails"), 1);
}

pub(crate) fn a_run_whose_job_was_cancelled_is_told_of_as_its_row_says(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let no = || "no".to_owned();
    let pause = Step::Pause(Duration::ZERO);
    let ends = [Step::Fail(no()), Step::Permanent(no()), Step::Panic(Blast::Text), pause, Step::Complete];
    for (nth, end) in ends.into_iter().enumerate() {
        let (tag, status) = (nth.to_string(), if end == Step::Complete { "completed" } else { "cancelled" });
        let id = stage.enqueue(job(&tag).run([Step::WaitForSignal, end]));
        stage.wait_start(&tag, 1);
        assert_eq!(stage.queue().cancel(id).expect("an answer"), CancelOutcome::Requested);
        stage.place.wait_status(id, status);
        assert_eq!(stage.place.events(id), [status]);
        assert_eq!(told_end(&stage, id), status, "the run {nth}");
    }
}

/// What became of a job, as its run's event tells.
fn told_end(stage: &Stage<'_>, id: i64) -> &'static str {
    let end = |event| match event {
        Event::Settled { outcome, .. } => Some(outcome.as_str()),
        Event::Released { .. } => Some("released"),
        _ => None,
    };
    eventually("the end is told", || stage.heard_of(id).into_iter().find_map(|(_, event)| end(event)))
}

pub(crate) fn a_job_whose_row_is_held_is_cancelled_when_it_is_free(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("held"));
    let mut session = stage.place.session();
    session.batch_execute(&format!("BEGIN; SELECT 1 FROM live WHERE id = {id} FOR UPDATE")).expect("a lock");
    let queue = stage.queue();
    thread::scope(|scope| {
        let cancelling = scope.spawn(|| queue.cancel(id).expect("an answer"));
        // The same connection serves others meanwhile.
        stage.enqueue(job("another"));
        assert!(!cancelling.is_finished());
        session.batch_execute("COMMIT").expect("the lock is given up");
        assert_eq!(cancelling.join().expect("no panic"), CancelOutcome::Cancelled);
    });
}

pub(crate) fn a_dead_job_that_is_requeued_runs_at_once_with_a_fresh_budget(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec { backstop: Some(Some(1)), ..WorkerSpec::without_polls() });
    let id = stage.enqueue(job("twice").run([Step::Add(5), Step::Fail("broken".to_owned())]).run([Step::Complete]));
    stage.place.wait_status(id, "dead");
    assert_eq!(stage.queue().requeue(id).expect("an answer"), RequeueOutcome::Requeued);
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 0));
    assert_eq!(stage.wait_start("twice", 2).carry, 5, "it goes on from what it had");
    assert_eq!(stage.place.events(id), ["dead", "requeued", "completed"]);
    assert_eq!(stage.queue().requeue(id).expect("an answer"), RequeueOutcome::Requeued, "a completed one as well");
    stage.wait_start("twice", 3);
    assert_eq!(stage.wait_start("twice", 3).carry, 0, "but afresh");
    stage.place.wait_status(id, "completed");
    let waiting = stage.enqueue(job("waiting").delayed(Duration::from_secs(3_600)));
    assert_eq!(stage.queue().requeue(waiting).expect("an answer"), RequeueOutcome::NotFinished);
}

pub(crate) fn a_requeued_job_whose_key_is_taken_stays_as_it_is(front: &dyn Front) {
    let stage = Stage::new(front);
    let insert = "INSERT INTO live (kind, payload, dedup_key) VALUES ('plain', '{}', 'one') RETURNING id";
    let first = stage.place.insert(insert);
    assert_eq!(stage.queue().cancel(first).expect("an answer"), CancelOutcome::Cancelled);
    let second = stage.place.insert(insert);
    let conflict = RequeueOutcome::Conflict(second.into());
    assert_eq!(stage.queue().requeue(first).expect("an answer"), conflict);
    assert_eq!(stage.place.job(first).status, "cancelled");
    assert_eq!(stage.queue().cancel(second).expect("an answer"), CancelOutcome::Cancelled);
    assert_eq!(stage.queue().requeue(first).expect("an answer"), RequeueOutcome::Requeued);
}

pub(crate) fn a_paused_kind_waits_and_a_resumed_one_starts_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    stage.work_idle(&WorkerSpec {
        kinds: vec![(Kind::Plain, None), (Kind::Other, None)],
        ..WorkerSpec::without_polls()
    });
    let running = stage.enqueue(job("running").waiting("gate"));
    stage.wait_start("running", 1);
    assert!(queue.pause_kind("plain").expect("an answer"));
    assert!(!queue.pause_kind("plain").expect("an answer"), "it is paused already");
    let held = stage.enqueue(job("held"));
    let other = stage.enqueue(job("other").of(Kind::Other));
    stage.place.wait_status(other, "completed");
    stage.open("gate");
    stage.place.wait_status(running, "completed");
    let third = stage.enqueue(job("third").of(Kind::Other));
    stage.place.wait_status(third, "completed");
    assert_eq!(stage.place.job(held).status, "pending", "other kinds were claimed since");
    let paused = queue.paused_kinds().expect("an answer");
    assert_eq!(paused.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["plain"]);
    assert!(queue.resume_kind("plain").expect("an answer"));
    stage.place.wait_status(held, "completed");
    assert!(!queue.resume_kind("plain").expect("an answer"));
    assert!(queue.paused_kinds().expect("an answer").is_empty());
    for name in ["", "a\nb", "a\0", &"x".repeat(101)] {
        assert_eq!(queue.pause_kind(name).expect_err("no kind is called so").kind(), ErrorKind::Config);
        assert_eq!(queue.resume_kind(name).expect_err("no kind is called so").kind(), ErrorKind::Config);
    }
}

pub(crate) fn a_paused_kind_keeps_an_idle_worker_idle(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    stage.assert_works("warm-up");
    stage.queue().pause_kind("plain").expect("an answer");
    stage.enqueue(job("held"));
    eventually("the worker asks no more", || {
        let before = stage.place.last_statement();
        for_a_while(1_500 * MS, "a worker that looks again does so within a second");
        (stage.place.last_statement() == before).then_some(())
    });
}

pub(crate) fn many_jobs_are_cancelled_and_requeued_by_filter(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    stage.enqueue_many(Kind::Plain, (0..1_300).map(|nth| job(format!("{nth}"))));
    stage.enqueue_many(Kind::Other, (0..3).map(|nth| job(format!("other {nth}")).of(Kind::Other)));
    let plain = JobFilter::new().kind("plain");
    let all = queue.cancel_all(plain.clone()).expect("done");
    assert_eq!((all.cancelled, all.requested, all.skipped), (1_300, 0, 0));
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 3);
    assert_eq!(queue.requeue_all(plain.clone()).expect("done").requeued, 0, "none of them is dead");
    let done = queue.requeue_all(plain.status(JobStatus::Cancelled)).expect("done");
    assert_eq!((done.requeued, done.conflicts, done.skipped), (1_300, 0, 0));
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 1_303);
    assert_eq!(stage.place.number("SELECT count(*) FROM journal WHERE event = 11"), 1_300);
    let nul = JobFilter::new().kind("a\0b");
    assert_eq!(queue.cancel_all(nul).expect_err("no text of the database").kind(), ErrorKind::Config);
}

pub(crate) fn running_jobs_are_cancelled_by_filter(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    for nth in 0..3 {
        stage.enqueue(job(format!("{nth}")).run([Step::WaitForSignal, Step::Pause(Duration::ZERO)]));
    }
    stage.wait_starts(3);
    let done = stage.queue().cancel_all(JobFilter::new()).expect("done");
    assert_eq!((done.requested, done.cancelled), (3, 0));
    stage.place.wait_all_finished();
    assert_eq!(stage.place.number("SELECT count(*) FROM finished WHERE status = 5"), 3);
    assert!((0..3).all(|nth| stage.wait_start(&nth.to_string(), 1).end != Some(End::Unwound)));
}
