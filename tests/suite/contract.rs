//! The shutdown contract where it touches rows and threads. What it is in full: `docs/shutdown.md`; its rules in
//! simulated time, with their numbers: `src/engine/tests/contract.rs`.

use std::time::{Duration, Instant};

use venturi::{CancelReason, LeftReason, ShutdownReport};

use super::front::{Front, Job, WorkerSpec};
use super::lab::End;
use super::place::{eventually, for_a_while};
use super::probe::{Blast, Kind, Step, job};
use super::proxy::Proxy;
use super::stage::Stage;

#[cfg(all(feature = "blocking", feature = "async"))]
mod futures;
#[cfg(all(feature = "blocking", feature = "async"))]
pub(crate) use futures::*;

const MS: Duration = Duration::from_millis(1);
const LEASE: Option<Duration> = Some(Duration::from_secs(3));

/// Far less than any time-out that must not be what ended something, and far more than a busy machine needs.
const AT_ONCE: Duration = Duration::from_secs(20);

fn impatient() -> WorkerSpec {
    WorkerSpec { shutdown_timeout: Some(100 * MS), handler_grace: Some(100 * MS), ..WorkerSpec::default() }
}

fn patient() -> WorkerSpec {
    WorkerSpec { shutdown_timeout: Some(Duration::from_secs(3_600)), ..WorkerSpec::default() }
}

/// A handler that does nothing but wait for the gate "end".
fn waiting(tag: &str) -> Job {
    job(tag).waiting("end")
}

fn wait(gate: &str) -> Step {
    Step::Wait(gate.to_owned())
}

/// Starts another worker, and returns when it has both its connections.
fn work_beside(stage: &Stage<'_>, spec: &WorkerSpec) {
    let before = stage.place.backends("true").len();
    stage.work(spec);
    eventually("the peer is connected", || (stage.place.backends("true").len() >= before + 2).then_some(()));
}

/// The row without what a release may change.
fn rest_of_row(stage: &Stage<'_>, id: i64) -> String {
    let sql = "SELECT (to_jsonb(l) - '{state,claimed_by,claim_expires_at,visible_at}'::text[])::text FROM live l WHERE id = $1";
    stage.place.rows(sql, &[&id])[0].get(0)
}

/// Everything that the row and the journal can say of an earlier life.
fn give_a_past(stage: &Stage<'_>, id: i64) {
    stage.place.run(&format!(
        "UPDATE live SET run_count = 5, failure_count = 3, priority = 2, carry = '7', dedup_key = 'a key', \
         created_at = now() - interval '1 day' WHERE id = {id}"
    ));
}

fn assert_given_back(stage: &Stage<'_>, id: i64) {
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.claimed_by, row.lease_left), ("pending", None, None));
    assert!(row.due_in <= 0.0, "it is due: {}", row.due_in);
}

fn assert_owns_nothing(stage: &Stage<'_>, report: &ShutdownReport) {
    assert!(report.left_claimed.is_empty(), "{report:?}");
    assert_eq!(stage.place.number("SELECT count(*) FROM live WHERE state = 2"), 0);
    let released = stage.place.number("SELECT count(*) FROM journal WHERE event = 8");
    assert_eq!(i64::try_from(report.released), Ok(released), "{report:?}");
}

// For both kinds of handlers.

/// C-11, C-16, C-39, C-40, C-41. Futures have their time; for threads it is over, and they are waited for.
pub(crate) fn a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = if stage.on_threads() { impatient() } else { patient() };
    let worker = stage.work(&WorkerSpec { lease: LEASE, ..spec });
    let id = stage.enqueue(waiting("long"));
    stage.wait_start("long", 1);
    work_beside(&stage, &WorkerSpec { lease: LEASE, ..WorkerSpec::default() });
    let owner = stage.place.job(id).claimed_by;
    let told = Instant::now();
    worker.tell_to_stop();
    while told.elapsed() < Duration::from_millis(4_500) {
        let row = stage.place.job(id);
        assert_eq!((row.status.as_str(), &row.claimed_by), ("claimed", &owner));
        assert!(row.lease_left.is_some_and(|left| left > 0.0), "it is renewed: {row:?}");
        worker.tell_to_stop();
        for_a_while(100 * MS, "looked at through more than a lease");
    }
    assert!(!worker.has_ended());
    let opened = Instant::now();
    stage.open("end");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert!(opened.elapsed() < AT_ONCE, "{:?}", opened.elapsed());
    assert_eq!((report.settled, report.late), (1, 0));
    assert_eq!((stage.starts("long"), stage.place.job(id).run_count), (1, 1));
    assert_eq!(stage.place.events(id), ["completed"]);
    assert_owns_nothing(&stage, &report);
}

/// C-03, C-26, C-30, C-33. The claim hangs in the server when the worker is told to stop, and succeeds after that.
pub(crate) fn a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("untouched"));
    give_a_past(&stage, id);
    let before = rest_of_row(&stage, id);
    stage.place.run(&format!(
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('{}')); RETURN NEW; END $$; \
         CREATE TRIGGER hang BEFORE UPDATE ON live FOR EACH ROW WHEN (NEW.state = 2) EXECUTE FUNCTION hang()",
        stage.place.schema
    ));
    let mut session = stage.place.session();
    let mut transaction = session.transaction().expect("a transaction");
    let lock = format!("SELECT pg_advisory_xact_lock(hashtext('{}'))", stage.place.schema);
    transaction.batch_execute(&lock).expect("a lock");
    let worker = stage.work(&patient());
    let hangs = || (!stage.place.backends("wait_event_type = 'Lock'").is_empty()).then_some(());
    eventually("the claim hangs", hangs);
    worker.tell_to_stop();
    transaction.rollback().expect("a roll-back");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.released, report.settled, stage.starts("untouched")), (1, 0, 0), "{report:?}");
    assert_given_back(&stage, id);
    let after = rest_of_row(&stage, id);
    assert_eq!(after.replace(r#""run_count": 6"#, r#""run_count": 5"#), before, "the claim counts, nothing else");
    assert_eq!(stage.place.events(id), ["released"]);
    assert_owns_nothing(&stage, &report);
}

/// C-31, C-32.
pub(crate) fn a_job_that_another_has_by_now_is_neither_settled_nor_released(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&impatient());
    let id = stage.enqueue(waiting("lost"));
    stage.wait_start("lost", 1);
    stage.place.give_away(id);
    let before = rest_of_row(&stage, id);
    worker.tell_to_stop();
    if stage.on_threads() {
        stage.open("end");
    }
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.settled, report.released, report.late), (0, 0, 1), "{report:?}");
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.claimed_by.as_deref()), ("claimed", Some("another")));
    assert_eq!((rest_of_row(&stage, id), stage.place.events(id).len()), (before, 0));
}

/// C-34.
pub(crate) fn without_a_time_to_wind_down_only_threads_are_waited_for(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { shutdown_timeout: Some(Duration::ZERO), ..WorkerSpec::serial() });
    let id = stage.enqueue(waiting("going"));
    stage.wait_start("going", 1);
    worker.tell_to_stop();
    if stage.on_threads() {
        for_a_while(300 * MS, "a worker that does not wait has ended by now");
        assert_eq!((worker.has_ended(), stage.place.job(id).status.as_str()), (false, "claimed"));
        stage.open("end");
    }
    let report = worker.end_within(AT_ONCE).expect("a report");
    let threads = u64::from(stage.on_threads());
    assert_eq!((report.settled, report.released), (threads, 1 - threads));
    assert_owns_nothing(&stage, &report);
}

/// C-37. The server takes everything and says nothing.
pub(crate) fn a_worker_whose_server_hangs_ends_in_its_time_and_says_what_it_left(front: &dyn Front) {
    let stage = Stage::new(front);
    let proxy = Proxy::start(&stage.place);
    let spec = WorkerSpec { abort_grace: Some(700 * MS), ..impatient() };
    let worker = stage.work_on(&spec, proxy.database(&stage.place));
    assert_left_behind(&stage, &worker, || {
        proxy.wire(0).mute();
        proxy.wire(1).mute();
    });
}

/// C-37.
pub(crate) fn a_worker_whose_table_is_locked_ends_in_its_time_and_says_what_it_left(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { abort_grace: Some(700 * MS), ..impatient() });
    let mut session = stage.place.session();
    let mut transaction = session.transaction().expect("a transaction");
    assert_left_behind(&stage, &worker, || {
        transaction.batch_execute("LOCK TABLE live IN SHARE MODE").expect("a lock");
    });
    drop(transaction);
}

/// Futures are dropped when their time is over, a thread returns later; in both cases nobody takes the news.
fn assert_left_behind(stage: &Stage<'_>, worker: &super::front::Running, break_it: impl FnOnce()) {
    let id = stage.enqueue(waiting("going"));
    stage.wait_start("going", 1);
    break_it();
    worker.tell_to_stop();
    if stage.on_threads() {
        for_a_while(1_500 * MS, "longer than all windows of a future");
        assert!(!worker.has_ended(), "a thread is waited for, server or not");
        stage.open("end");
    }
    let report = worker.end_within(AT_ONCE).expect("a report");
    let left: Vec<_> = report.left_claimed.iter().map(|left| (left.job.get(), left.kind, left.reason)).collect();
    assert_eq!(left, [(id, "plain", LeftReason::NotStored)], "{report:?}");
    assert_eq!((report.settled, report.released), (0, 0));
}

/// C-29, C-39.
pub(crate) fn a_held_run_delays_the_stop(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { abort_grace: Some(Duration::from_secs(60)), lease: LEASE, ..impatient() };
    let worker = stage.work(&spec);
    // On a thread the handler returns; a future never does, and is dropped.
    let steps = if stage.on_threads() { vec![] } else { vec![wait("never")] };
    let id = stage.enqueue(job("held").run([vec![Step::Hold("let go".to_owned())], steps].concat()));
    stage.wait_start("held", 1);
    work_beside(&stage, &WorkerSpec { lease: LEASE, ..WorkerSpec::of(&[Kind::Other]) });
    worker.tell_to_stop();
    let end = stage.wait("the handler's end", |book| book.of("held")[0].end);
    assert_eq!(end, if stage.on_threads() { End::Returned } else { End::Unwound });
    let ended = Instant::now();
    while ended.elapsed() < Duration::from_secs(4) {
        let row = stage.place.job(id);
        assert!(row.lease_left.is_some_and(|left| left > 0.0), "claimed, and renewed: {row:?}");
        for_a_while(100 * MS, "looked at through more than a lease");
    }
    assert!(!worker.has_ended());
    stage.open("let go");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    let events = if stage.on_threads() { ["completed"] } else { ["released"] };
    assert_eq!((stage.place.events(id), stage.place.job(id).failure_count), (events.map(str::to_owned).to_vec(), 0));
    assert_owns_nothing(&stage, &report);
}

// For threads.

/// C-08, C-09, C-12: the windows add up, and none of them ends the wait.
pub(crate) fn a_thread_is_waited_for_through_all_windows(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&impatient());
    let ids = stage.enqueue_many(Kind::Plain, (0..2).map(|_| waiting("going")));
    stage.wait_start("going", 2);
    worker.tell_to_stop();
    for _ in 0..10 {
        for_a_while(100 * MS, "looked at through all windows");
        worker.tell_to_stop();
        assert!(!worker.has_ended());
        assert!(ids.iter().all(|id| stage.place.job(*id).status == "claimed"));
    }
    stage.open("end");
    let report = worker.end_within(AT_ONCE).expect("a report");
    assert_eq!((report.settled, report.released, report.timed_out), (2, 0, 0));
    assert!(ids.iter().all(|id| stage.place.events(*id) == ["completed"]));
    assert_owns_nothing(&stage, &report);
}

/// C-13, C-24.
pub(crate) fn what_a_late_thread_returns_is_settled_as_ever(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&impatient());
    let ends = [
        (Step::Fail("no luck".to_owned()), "pending", 1, "retried"),
        (Step::Permanent("never".to_owned()), "dead", 1, "dead"),
        (Step::Panic(Blast::Text), "pending", 1, "retried"),
        (Step::Pause(Duration::from_secs(60)), "pending", 0, "paused"),
    ];
    let script = |step: &Step| job("late").run([Step::Add(3), wait("end"), step.clone()]);
    let ids = ends.each_ref().map(|(step, ..)| stage.enqueue(script(step)));
    stage.wait_start("late", 4);
    worker.tell_to_stop();
    for_a_while(500 * MS, "beyond the drain and the grace");
    stage.open("end");
    let report = worker.end_within(AT_ONCE).expect("a report");
    assert_eq!((report.settled, report.released), (4, 0), "{report:?}");
    for (id, (_, status, failures, event)) in ids.into_iter().zip(&ends) {
        let row = stage.place.job(id);
        assert_eq!((row.status.as_str(), row.failure_count), (*status, *failures), "{event}");
        assert_eq!(stage.place.events(id), [*event]);
    }
    assert_owns_nothing(&stage, &report);
}

/// C-21, C-22, C-23: the failure is stored at the deadline; the thread keeps its slot, and the worker waits for it.
pub(crate) fn a_thread_that_times_out_keeps_its_slot_and_delays_the_stop(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { kinds: vec![(Kind::Brisk, None), (Kind::Plain, None)], ..patient() };
    let worker = stage.work(&WorkerSpec { concurrency: Some(1), ..spec });
    let slow = stage.enqueue(waiting("slow").of(Kind::Brisk));
    let started = stage.wait_start("slow", 1).started;
    let next = stage.enqueue(job("next"));
    stage.place.wait_job(slow, "timed out", |row| row.failure_count == 1);
    assert!(started.elapsed() >= 300 * MS && stage.place.was_put_off(slow), "it waits for its next run");
    for_a_while(1_000 * MS, "a slot that is free would be filled by now");
    assert_eq!((stage.starts("next"), stage.starts("slow")), (0, 1), "the thread has the slot");
    worker.tell_to_stop();
    for_a_while(300 * MS, "a worker that does not wait has ended by now");
    assert!(!worker.has_ended());
    stage.open("end");
    let report = worker.end_within(AT_ONCE).expect("a report");
    assert_eq!((report.timed_out, report.late, report.settled, report.released), (1, 1, 0, 0), "{report:?}");
    assert_eq!(stage.look(|book| book.of("slow")[0].cancelled), Some(CancelReason::TimedOut));
    assert_eq!((stage.place.events(slow), stage.place.job(slow).run_count), (vec!["retried".to_owned()], 1));
    assert_eq!(stage.place.job(next).run_count, 0);
    let note = stage.place.journal(slow)[0].note.clone();
    assert_eq!(note.as_deref(), Some("timed out after 300ms"));
}

/// C-19, C-21: from the force on the thread keeps its row until it returns.
pub(crate) fn a_thread_times_out_no_more_once_the_shutdown_is_forced(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { timeout: Some(Duration::from_secs(2)), ..impatient() });
    let id = stage.enqueue(waiting("going"));
    let started = stage.wait_start("going", 1).started;
    worker.tell_to_stop();
    while started.elapsed() < Duration::from_millis(2_700) {
        assert_eq!(stage.place.job(id).status, "claimed");
        for_a_while(100 * MS, "looked at until the time-out is past");
    }
    stage.open("end");
    let report = worker.end_within(AT_ONCE).expect("a report");
    assert_eq!((report.settled, report.timed_out, report.late), (1, 0, 0));
    assert_eq!(stage.place.events(id), ["completed"]);
}

// For futures.

/// C-05, C-30, C-33, C-39.
pub(crate) fn a_released_job_has_changed_in_nothing_but_its_claim(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("going").run([Step::Add(1), wait("never")]).with_filler(2_000));
    give_a_past(&stage, id);
    let worker = stage.work(&impatient());
    stage.wait_start("going", 1);
    let (before, payload) = (rest_of_row(&stage, id), stage.place.job(id).payload);
    let report = worker.stop();
    assert_eq!(report.released, 1, "{report:?}");
    assert_given_back(&stage, id);
    assert_eq!((rest_of_row(&stage, id), stage.place.job(id).payload), (before, payload));
    let journal = stage.place.journal(id);
    assert_eq!((journal.len(), journal[0].run, journal[0].event.as_str()), (1, 6, "released"));
    assert_eq!((&journal[0].note, &journal[0].attachment), (&None, &None), "the reason is told, not stored");
    assert_eq!(stage.look(|book| book.of("going")[0].end), Some(End::Unwound));
    assert_owns_nothing(&stage, &report);
}

/// C-07, C-40.
pub(crate) fn releases_never_use_up_a_job(front: &dyn Front) {
    let stage = Stage::new(front);
    let script = (0..3).fold(job("survivor"), |job, _| job.run([wait("never")])).run([Step::Complete]);
    let id = stage.enqueue(script);
    let spec = WorkerSpec { backstop: Some(Some(1)), ..impatient() };
    for run in 1..=3 {
        let worker = stage.work(&spec);
        stage.wait_start("survivor", run);
        assert_eq!(worker.stop().released, 1);
    }
    stage.work(&spec);
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (4, 0));
    assert_eq!(stage.place.events(id), ["released", "released", "released", "completed"]);
}

/// C-17, C-18: each against a time-out or a shutdown that would come much later.
pub(crate) fn of_time_out_and_shutdown_the_one_that_comes_first_decides(front: &dyn Front) {
    let stage = Stage::new(front);
    let kinds = vec![(Kind::Brisk, None)];
    let worker = stage.work(&WorkerSpec { kinds, ..patient() });
    let id = stage.enqueue(job("brisk").of(Kind::Brisk).run([Step::Add(1), wait("never")]));
    stage.wait_start("brisk", 1);
    worker.tell_to_stop();
    let report = worker.end_within(AT_ONCE).expect("a report");
    assert_eq!((report.timed_out, report.released), (1, 0), "{report:?}");
    let row = stage.place.job(id);
    assert_eq!((row.failure_count, row.carry, stage.place.events(id)), (1, None, vec!["retried".to_owned()]));
    assert_eq!(stage.place.journal(id)[0].note.as_deref(), Some("timed out after 300ms"));

    let worker = stage.work(&WorkerSpec { timeout: Some(Duration::from_secs(60)), ..impatient() });
    let id = stage.enqueue(job("plain").waiting("never"));
    stage.wait_start("plain", 1);
    let report = worker.stop();
    assert_eq!((report.timed_out, report.released), (0, 1), "{report:?}");
    assert_eq!((stage.place.job(id).failure_count, stage.place.events(id)), (0, vec!["released".to_owned()]));
}

/// C-28, C-38: it could not be dropped while it kept its thread busy, and then it was done.
pub(crate) fn a_future_that_ends_although_it_was_to_be_dropped_is_settled(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { abort_grace: Some(Duration::from_secs(60)), ..impatient() });
    let id = stage.enqueue(job("busy").run([Step::Block(Duration::from_millis(1_500))]));
    stage.wait_start("busy", 1);
    let report = worker.stop();
    assert_eq!((report.settled, report.released), (1, 0), "{report:?}");
    assert_eq!(stage.place.events(id), ["completed"]);
    assert_owns_nothing(&stage, &report);
}

/// C-29: a time-out, too, waits for what the future left behind.
pub(crate) fn a_timed_out_job_is_retried_only_when_its_hold_is_gone(front: &dyn Front) {
    let stage = Stage::new(front);
    let kinds = vec![(Kind::Brisk, None)];
    stage.work(&WorkerSpec { kinds, abort_grace: Some(Duration::from_secs(60)), ..WorkerSpec::serial() });
    let id = stage.enqueue(job("held").of(Kind::Brisk).run([Step::Hold("let go".to_owned()), wait("never")]).run([]));
    stage.wait("the future is dropped", |book| (book.of("held").first()?.end == Some(End::Unwound)).then_some(()));
    for_a_while(1_000 * MS, "the next run would have begun by now");
    assert_eq!((stage.place.job(id).status.as_str(), stage.starts("held")), ("claimed", 1));
    stage.open("let go");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
    assert_eq!(stage.place.events(id), ["retried", "completed"]);
}

/// C-31: the server has released it, and nobody heard.
pub(crate) fn a_release_whose_reply_was_lost_is_stored_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let proxy = Proxy::start(&stage.place);
    // One slot, so that nothing else is asked of the server meanwhile.
    let spec = WorkerSpec { concurrency: Some(1), abort_grace: Some(Duration::from_secs(60)), ..impatient() };
    let worker = stage.work_on(&spec, proxy.database(&stage.place));
    // Once it has settled a run that did not complete, settling such takes one message and no reply.
    let warm_up = stage.enqueue(job("warm-up").run([Step::Fail("once".to_owned())]).run([Step::Complete]));
    stage.place.wait_status(warm_up, "completed");
    let id = stage.enqueue(job("going").waiting("never"));
    stage.wait_start("going", 1);
    proxy.wire(0).mute();
    worker.tell_to_stop();
    eventually("it is released", || (!stage.place.events(id).is_empty()).then_some(()));
    assert!(!worker.has_ended());
    proxy.wire(0).cut();
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.released, stage.place.events(id)), (1, vec!["released".to_owned()]));
    assert_owns_nothing(&stage, &report);
}
