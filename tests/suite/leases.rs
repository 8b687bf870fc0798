//! Leases: renewed while a handler runs, recovered when nobody renews them.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime};

use venturi::{CancelReason, Event};

use super::child::{self, Mood};
use super::front::{Front, WorkerSpec};
use super::interest::in_kind;
use super::place::eventually;
use super::probe::{Blast, Kind, Step, job};
use super::stage::Stage;

/// How a process ends that aborts.
const SIGABRT: i32 = 6;

const MS: Duration = Duration::from_millis(1);
const SHORT: Option<Duration> = Some(Duration::from_secs(3));

fn short_lease() -> WorkerSpec {
    WorkerSpec { lease: SHORT, ..WorkerSpec::without_polls() }
}

/// A job of the plain kind that a worker claimed which is no more; its lease ended a second ago.
fn orphan(stage: &Stage<'_>, script: super::front::Job, failures: i32) -> i64 {
    let id = stage.enqueue(script);
    stage.place.run(&format!(
        "UPDATE live SET state = 2, run_count = {failures} + 1, failure_count = {failures}, carry = '7', \
         claimed_by = 'ghost:17:0badcafe', claim_expires_at = now() - interval '1 second' WHERE id = {id}"
    ));
    id
}

pub(crate) fn a_job_whose_worker_died_is_run_again_as_a_failure(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = orphan(&stage, job("orphan"), 0);
    stage.work(&WorkerSpec::default());
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
    let run = stage.wait_start("orphan", 1);
    assert_eq!((run.run, run.failures, run.carry), (2, 1, 7), "it goes on from the carry that was stored");
    let entry = &stage.place.journal(id)[0];
    assert_eq!((entry.run, entry.event.as_str()), (1, "stale-recovered"));
    let note = entry.note.as_deref().expect("a note");
    assert!(note.contains("lease expired") && note.contains("ghost:17:0badcafe"), "{note}");
    assert_eq!(entry.claimed_by.as_deref(), Some("ghost:17:0badcafe"));
}

pub(crate) fn a_recovered_job_does_not_come_back_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = orphan(&stage, job("orphan"), 0);
    let backoff = Some((Duration::from_secs(600), Duration::from_secs(900)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::default() });
    let row = stage.place.wait_job(id, "recovered", |row| row.failure_count == 1);
    assert_eq!((row.status.as_str(), row.claimed_by), ("pending", None));
    assert!(
        (500.0..=600.0).contains(&row.due_in),
        "the base at least, although first failures are free: {}",
        row.due_in
    );
}

pub(crate) fn a_job_at_its_backstop_dies_of_its_lost_lease(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = orphan(&stage, job("orphan"), 19);
    stage.work(&WorkerSpec::default());
    let row = stage.place.wait_status(id, "dead");
    assert_eq!((row.run_count, row.failure_count), (20, 20));
    assert_eq!(stage.place.events(id), ["stale-recovered"]);
    assert_eq!(stage.starts("orphan"), 0);
}

/// By hand, where no worker is.
pub(crate) fn expired_claims_can_be_recovered_through_the_queue(front: &dyn Front) {
    let stage = Stage::new(front);
    let (back, dead) = (orphan(&stage, job("back"), 0), orphan(&stage, job("dead"), 19));
    let (alive, cancelled) = (orphan(&stage, job("alive"), 0), orphan(&stage, job("cancelled"), 19));
    stage.place.run(&format!("UPDATE live SET cancel_requested_at = now() WHERE id = {cancelled}"));
    stage.place.run(&format!("UPDATE live SET claim_expires_at = now() + interval '1 hour' WHERE id = {alive}"));
    let done = stage.queue().recover_stale().expect("a recovery");
    assert_eq!((done.repended, done.dead, done.cancelled), (1, 1, 1));
    let row = stage.place.job(back);
    assert_eq!((row.status.as_str(), row.failure_count, row.run_count), ("pending", 1, 1));
    assert!(stage.place.was_put_off(back), "it waits a little");
    let statuses = [dead, alive, cancelled].map(|id| stage.place.job(id).status);
    assert_eq!(statuses, ["dead", "claimed", "cancelled"]);
    assert_eq!([back, dead, alive, cancelled].map(|id| stage.place.events(id).len()), [1, 1, 0, 1]);
    let again = stage.queue().recover_stale().expect("a recovery");
    assert_eq!((again.repended, again.dead, again.cancelled), (0, 0, 0));
}

pub(crate) fn what_became_of_a_job_whose_lease_ran_out_is_told_as_its_row_says(front: &dyn Front) {
    let stage = Stage::new(front);
    let ids = [("back", 0), ("dead", 19), ("cancelled", 19)].map(|(tag, failures)| orphan(&stage, job(tag), failures));
    stage.place.run(&format!("UPDATE live SET cancel_requested_at = now() WHERE id = {}", ids[2]));
    let backoff = Some((Duration::from_secs(600), Duration::from_secs(900)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::default() });
    let told = |(_, event)| match event {
        Event::Recovered { status, .. } => Some(status),
        _ => None,
    };
    let statuses = ids.map(|id| eventually("it is told", || stage.heard_of(id).into_iter().find_map(told)).as_str());
    assert_eq!(statuses, ["pending", "dead", "cancelled"]);
    assert_eq!(ids.map(|id| stage.place.job(id).status), statuses);
}

pub(crate) fn a_claim_of_a_kind_that_nobody_here_runs_is_recovered_too(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = orphan(&stage, job("foreign").of(Kind::Other), 0);
    stage.work(&WorkerSpec::default());
    let row = stage.place.wait_job(id, "recovered", |row| row.failure_count == 1);
    assert_eq!((row.status.as_str(), row.claimed_by), ("pending", None));
}

pub(crate) fn a_malformed_row_keeps_no_other_from_running(front: &dyn Front) {
    let stage = Stage::new(front);
    // Its payload is in the side table, says the row; but it is not.
    let id = stage.place.insert("INSERT INTO live (kind, priority) VALUES ('plain', 0) RETURNING id");
    let orphan = orphan(&stage, job("orphan"), 0);
    let sound = stage.enqueue_many(Kind::Plain, (0..3).map(|nth| job(format!("{nth}"))));
    stage.work(&WorkerSpec { undecodable_is_final: true, ..WorkerSpec::default() });
    for id in sound.into_iter().chain([orphan]) {
        stage.place.wait_status(id, "completed");
    }
    let row = stage.place.wait_status(id, "dead");
    assert!(row.note.as_ref().is_some_and(|note| note.starts_with("cannot decode the row")), "{row:?}");
}

pub(crate) fn a_claim_that_has_not_run_out_is_left_alone(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = orphan(&stage, job("alive"), 0);
    stage.place.run(&format!("UPDATE live SET claim_expires_at = now() + interval '1 hour' WHERE id = {id}"));
    stage.work(&WorkerSpec { poll_max: Some(100 * MS), ..WorkerSpec::default() });
    (0..5).for_each(|nth| stage.assert_works(&format!("{nth}")));
    assert_eq!(stage.place.job(id).claimed_by.as_deref(), Some("ghost:17:0badcafe"));
}

pub(crate) fn a_handler_that_outlives_its_lease_runs_once_beside_a_live_peer(front: &dyn Front) {
    let stage = Stage::new(front);
    let (first, second) = (stage.work(&short_lease()), stage.work(&short_lease()));
    let id = stage.enqueue(job("long").waiting("end"));
    stage.wait_start("long", 1);
    let expiry = "SELECT claim_expires_at FROM live WHERE state = 2";
    let stamped: SystemTime = stage.place.rows(expiry, &[])[0].get(0);
    eventually("the first lease is over by the server's clock, and the peer has had time to look", || {
        let over = "SELECT 1 WHERE clock_timestamp() > $1::timestamptz + interval '1 second'";
        (!stage.place.rows(over, &[&stamped]).is_empty()).then_some(())
    });
    stage.open("end");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count, stage.starts("long")), (1, 0, 1));
    assert_eq!(stage.place.events(id), ["completed"]);
    assert_eq!(first.stop().late + second.stop().late, 0);
}

/// The thread that it runs on, and with it perhaps the executor, is kept busy for longer than the lease.
pub(crate) fn a_handler_that_keeps_its_thread_busy_keeps_its_claim(front: &dyn Front) {
    let stage = Stage::new(front);
    let peer = child::Worker::start(&stage, &short_lease(), Mood::Usual);
    eventually("the peer listens", || (stage.place.number(CHILD_LISTENS) > 0).then_some(()));
    let busy = Step::Block(Duration::from_millis(3_600));
    let id = stage.enqueue(job("busy").of(Kind::Other).run([busy]));
    stage.work(&WorkerSpec { kinds: vec![(Kind::Other, None)], ..short_lease() });
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (1, 0));
    peer.stop();
}

/// A child's connections have the library's own name.
const CHILD_LISTENS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE application_name = 'venturi' AND query LIKE '%LISTEN%' AND query LIKE '%' || current_schema() || '%'";

pub(crate) fn without_renewal_a_lease_ends_in_its_time(front: &dyn Front) {
    let stage = Stage::new(front);
    let lease = Some(Duration::from_secs(1));
    let spec = WorkerSpec { lease, renew_leases: false, concurrency: Some(1), ..WorkerSpec::without_polls() };
    let script = job("long").run([Step::Wait("end".to_owned()), Step::Note("late".to_owned())]);
    let id = stage.enqueue(script.run([Step::Note("in time".to_owned())]));
    let first = stage.work(&spec);
    stage.wait_start("long", 1);
    stage.work(&spec);
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count, row.note.as_deref()), (2, 1, Some("in time")));
    assert_eq!(stage.place.events(id), ["stale-recovered", "completed"]);
    stage.open("end");
    let report = first.stop();
    assert_eq!((report.settled, report.late), (0, 1), "{report:?}");
    assert_eq!(stage.place.job(id).note.as_deref(), Some("in time"));
}

pub(crate) fn a_worker_whose_interest_is_refused_again_and_again_keeps_its_claims(front: &dyn Front) {
    let stage = Stage::new(front);
    let (mut somebody, key) = (stage.place.session(), in_kind(&stage.place.schema, "plain"));
    somebody.query("SELECT pg_advisory_lock($1)", &[&key]).expect("the lock");
    stage.work(&short_lease());
    let waiting = "SELECT a.query_start FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
        WHERE l.locktype = 'advisory' AND NOT l.granted AND (l.classid::bigint << 32) | l.objid::bigint = $1";
    let mut tries = BTreeSet::<SystemTime>::new();
    // So often that back-off would hold up what comes next for longer than the lease.
    eventually("it has asked eight times", || {
        tries.extend(stage.place.rows(waiting, &[&key]).iter().map(|row| row.get::<_, SystemTime>(0)));
        (tries.len() >= 8).then_some(())
    });
    let id = stage.enqueue(job("long").run([Step::Wait("end".to_owned())]));
    stage.wait_start("long", 1);
    stage.work(&short_lease());
    let expiry =
        || -> SystemTime { stage.place.rows("SELECT claim_expires_at FROM live WHERE id = $1", &[&id])[0].get(0) };
    let first = expiry();
    eventually("it is renewed", || (expiry() > first + 2 * Duration::from_secs(3)).then_some(()));
    stage.open("end");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, stage.place.events(id)), (1, vec!["completed".to_owned()]));
}

pub(crate) fn a_killed_workers_job_is_run_again_when_its_lease_is_over(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut victim = child::Worker::start(&stage, &short_lease(), Mood::Usual);
    let id = stage.enqueue(job("survivor").run([Step::Wait("never".to_owned())]).run([Step::Complete]));
    stage.place.wait_status(id, "claimed");
    stage.work_idle(&short_lease());
    victim.signal("KILL");
    victim.wait_end();
    let lease: SystemTime = stage.place.rows("SELECT claim_expires_at FROM live WHERE id = $1", &[&id])[0].get(0);
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
    let recovered = "SELECT extract(epoch FROM min(at) - $2)::float8 FROM journal_entries WHERE job_id = $1";
    let late: f64 = stage.place.rows(recovered, &[&id, &lease])[0].get(0);
    println!("recovered {late:.3} s after the lease");
    assert!(late > 0.0, "{late}");
    assert_eq!(stage.place.events(id), ["stale-recovered", "completed"]);
}

pub(crate) fn a_worker_that_slept_past_its_lease_learns_that_its_claim_is_lost(front: &dyn Front) {
    let stage = Stage::new(front);
    // One slot, so that the witness runs only when the sleeper's handler has ended.
    let kinds = vec![(Kind::Plain, None), (Kind::Third, None)];
    let spec = WorkerSpec { kinds, concurrency: Some(1), ..short_lease() };
    let sleeper = child::Worker::start(&stage, &spec, Mood::Usual);
    let script = job("sleepy").run([Step::WaitForSignal, Step::Note("too late".to_owned())]);
    let id = stage.enqueue(script.run([Step::Note("in time".to_owned())]));
    stage.place.wait_status(id, "claimed");
    sleeper.signal("STOP");
    stage.work(&short_lease());
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.note.as_deref()), (2, Some("in time")));
    sleeper.signal("CONT");
    let witness = stage.enqueue(job("witness").of(Kind::Third));
    stage.place.wait_status(witness, "completed");
    let said = sleeper.stop();
    assert!(said.contains("late=1") && said.contains("ClaimLost"), "{said}");
    assert_eq!(stage.place.job(id).note.as_deref(), Some("in time"));
    assert_eq!(stage.place.events(id), ["stale-recovered", "completed"]);
}

/// The row is taken away while the handler runs; the renewal finds out and the handler is told.
pub(crate) fn a_handler_whose_claim_is_lost_is_told_so(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&short_lease());
    let id = stage.enqueue(job("lost").run([Step::WaitForSignal]));
    stage.wait_start("lost", 1);
    stage.place.give_away(id);
    let reason = stage.wait("the signal", |book| book.of("lost")[0].cancelled);
    assert_eq!(reason, CancelReason::ClaimLost);
    assert_eq!(stage.place.job(id).claimed_by.as_deref(), Some("another"));
}

pub(crate) fn where_a_panic_ends_the_process_the_lease_brings_the_job_back(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut victim = child::Worker::start_aborting(&stage);
    let id = stage.enqueue(job("deadly"));
    let end = victim.wait_end();
    assert_eq!(end.signal(), Some(SIGABRT), "{end}");
    assert_eq!(stage.place.job(id).status, "claimed");
    stage.work(&short_lease());
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
    assert_eq!(stage.place.events(id), ["stale-recovered", "completed"]);
}

pub(crate) fn a_panic_on_top_of_a_panic_does_not_end_the_process(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut worker = child::Worker::start(&stage, &short_lease(), Mood::Usual);
    let id = stage.enqueue(job("twice").run([Step::DropPanics, Step::Panic(Blast::Text)]).run([Step::Complete]));
    eventually("the job is completed", || {
        assert!(!worker.has_ended(), "the process has ended");
        (stage.place.job(id).status == "completed").then_some(())
    });
    assert_eq!(stage.place.events(id), ["retried", "completed"]);
    worker.stop();
}

pub(crate) fn a_logger_that_panics_stops_no_worker(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = child::Worker::start(&stage, &short_lease(), Mood::LoggerPanics);
    let jobs = stage.enqueue_many(Kind::Plain, (0..4).map(|nth| job(format!("{nth}")).failing(nth)));
    for id in jobs {
        assert_eq!(stage.place.wait_status(id, "completed").status, "completed");
    }
    let said = worker.stop();
    assert!(said.contains("settled=10"), "{said}");
}
