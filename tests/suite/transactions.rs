//! Jobs and their effects in one transaction.

use std::time::{Duration, Instant};

use super::child::{self, Mood};
use super::effects;
use super::front::{Front, WorkerSpec};
use super::place::eventually;
use super::probe::{Blast, Finish, Kind, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

fn stage(front: &dyn Front) -> Stage<'_> {
    let stage = Stage::new(front);
    stage.place.run(effects::TABLE);
    stage
}

fn short_lease() -> WorkerSpec {
    WorkerSpec { lease: Some(Duration::from_secs(3)), backoff: Some((500 * MS, 500 * MS)), ..WorkerSpec::default() }
}

fn commit() -> Step {
    Step::CompleteIn(Finish::Commit)
}

fn wait(gate: &str) -> Step {
    Step::Wait(gate.to_owned())
}

impl Stage<'_> {
    fn effects(&self, id: i64) -> i64 {
        self.place.number(&format!("SELECT count(*) FROM effect WHERE job = {id}"))
    }

    fn wait_answers<const N: usize>(&self, tag: &str, answers: [&str; N]) {
        self.wait("the answers", |book| (book.of(tag).first()?.answers == answers).then_some(()));
    }

    /// Until at least so many leases of three seconds have passed.
    fn outlast_leases(&self, leases: u32) {
        let (begun, time) = (Instant::now(), leases * Duration::from_secs(3));
        eventually("the leases have passed", || (begun.elapsed() > time).then_some(()));
    }
}

pub(crate) fn a_completion_is_there_with_its_effects_or_not_at_all(front: &dyn Front) {
    let stage = stage(front);
    let worker = stage.work(&short_lease());
    let script = job("paid").run([Step::CompleteIn(Finish::RollBack), Step::Fail("no luck".to_owned())]);
    let (id, row) = stage.finish(script.run([Step::Attach("receipt".to_owned()), commit()]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1));
    assert_eq!((stage.effects(id), row.attachment.as_deref()), (1, Some("\"receipt\"")));
    assert_eq!(stage.place.events(id), ["retried", "completed"]);
    let report = worker.stop();
    assert_eq!((report.settled, report.overruled, report.late), (2, 0, 0), "{report:?}");
}

pub(crate) fn a_job_that_was_completed_stays_completed_whatever_its_handler_does_then(front: &dyn Front) {
    let stage = stage(front);
    let worker = stage.work(&WorkerSpec::default());
    let ends = [
        Step::Fail("no luck".to_owned()),
        Step::Permanent("never".to_owned()),
        Step::Pause(MS),
        Step::Panic(Blast::Text),
    ];
    let ids = stage.enqueue_many(Kind::Plain, ends.map(|end| job("said").run([commit(), end])));
    ids.iter().for_each(|id| drop(stage.place.wait_status(*id, "completed")));
    let report = worker.stop();
    assert_eq!((report.settled, report.overruled, report.late), (4, 4, 0), "{report:?}");
    for id in ids {
        let row = stage.place.job(id);
        assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 1, 0));
        assert_eq!((stage.effects(id), stage.place.events(id)), (1, vec!["completed".to_owned()]));
    }
}

/// On a busy machine a run or two may time out before they come to their commits.
pub(crate) fn a_handler_that_hangs_after_its_commit_is_stopped_and_its_job_stays_completed(front: &dyn Front) {
    let stage = stage(front);
    let worker = stage.work(&WorkerSpec { timeout: Some(Duration::from_secs(3)), ..WorkerSpec::serial() });
    let id = stage.enqueue(job("hung").run([commit(), Step::WaitForSignal, Step::Fail("told to stop".to_owned())]));
    stage.place.wait_status(id, "completed");
    // Its slot is free again.
    stage.assert_works("after it");
    let report = worker.stop();
    assert_eq!((report.overruled, stage.effects(id)), (1, 1), "{report:?}");
    assert_eq!(stage.place.job(id).status, "completed");
    assert_eq!(stage.place.events(id).iter().filter(|event| *event == "completed").count(), 1);
}

pub(crate) fn a_handler_that_goes_on_after_its_commit_is_left_alone(front: &dyn Front) {
    let stage = stage(front);
    let worker = stage.work(&short_lease());
    let id = stage.enqueue(job("thorough").run([commit(), wait("end"), Step::Complete]));
    stage.place.wait_status(id, "completed");
    stage.outlast_leases(1);
    stage.open("end");
    stage.wait("its end", |book| book.of("thorough")[0].end);
    let run = stage.look(|book| book.of("thorough")[0].clone());
    assert_eq!((run.cancelled, stage.starts("thorough")), (None, 1));
    let report = worker.stop();
    assert_eq!((report.settled, report.overruled, report.late), (1, 0, 0), "{report:?}");
}

pub(crate) fn a_completion_that_was_not_committed_makes_the_run_a_failure(front: &dyn Front) {
    let stage = stage(front);
    stage.work(&short_lease());
    let script = job("forgot").run([Step::CompleteIn(Finish::RollBack), Step::Complete]).run([commit()]);
    let (id, row) = stage.finish(script);
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1));
    assert_eq!(stage.effects(id), 1);
    let note = stage.place.journal(id)[0].note.clone().unwrap_or_default();
    assert!(note.contains("not committed"), "{note}");
}

pub(crate) fn a_completion_is_refused_once_another_has_claimed_the_job(front: &dyn Front) {
    let stage = stage(front);
    stage.work(&WorkerSpec::default());
    let id = stage.enqueue(job("lost").run([wait("go"), commit()]));
    stage.wait_start("lost", 1);
    stage.place.give_away(id);
    stage.open("go");
    stage.wait_answers("lost", ["ClaimLost"]);
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.claimed_by.as_deref()), ("claimed", Some("another")));
    assert_eq!(stage.effects(id), 0);
}

/// As a handler does it that tries again because it does not know whether its commit arrived.
pub(crate) fn a_commit_whose_reply_was_lost_is_not_done_twice(front: &dyn Front) {
    let stage = stage(front);
    stage.work(&WorkerSpec::default());
    let (id, row) = stage.finish(job("twice").run([commit(), commit()]));
    stage.wait_answers("twice", ["stored", "AlreadyCompleted"]);
    assert_eq!((stage.effects(id), row.run_count), (1, 1));
}

pub(crate) fn a_checkpoint_after_a_completion_is_refused(front: &dyn Front) {
    let stage = stage(front);
    stage.work(&WorkerSpec::default());
    stage.enqueue(job("both").run([Step::Checkpoint, commit(), Step::Checkpoint]));
    stage.wait_answers("both", ["stored", "stored", "Conflict"]);
}

pub(crate) fn a_transaction_that_outlives_its_lease_keeps_its_job(front: &dyn Front) {
    let stage = stage(front);
    let workers = [stage.work(&short_lease()), stage.work(&short_lease())];
    let id = stage.enqueue(job("long").run([Step::CompleteIn(Finish::CommitAfter("end".to_owned()))]));
    stage.wait_start("long", 1);
    stage.outlast_leases(2);
    assert_eq!(stage.place.job(id).status, "claimed");
    stage.open("end");
    stage.place.wait_status(id, "completed");
    let reports = workers.map(|worker| worker.stop());
    assert_eq!((reports[0].late + reports[1].late, stage.starts("long")), (0, 1), "{reports:?}");
    assert_eq!((stage.effects(id), stage.place.events(id)), (1, vec!["completed".to_owned()]));
}

pub(crate) fn a_worker_that_is_killed_after_the_commit_has_done_everything(front: &dyn Front) {
    let stage = stage(front);
    let mut victim = child::Worker::start(&stage, &short_lease(), Mood::Usual);
    let id = stage.enqueue(job("done").run([commit(), wait("never")]));
    stage.place.wait_status(id, "completed");
    victim.signal("KILL");
    victim.wait_end();
    stage.work(&short_lease());
    stage.outlast_leases(2);
    stage.assert_works("after it");
    assert_eq!((stage.starts("done"), stage.effects(id), stage.place.job(id).run_count), (0, 1, 1));
    assert_eq!(stage.place.events(id), ["completed"]);
}

pub(crate) fn a_worker_that_is_killed_before_the_commit_has_done_nothing(front: &dyn Front) {
    let stage = stage(front);
    let mut victim = child::Worker::start(&stage, &short_lease(), Mood::Usual);
    let never = Step::CompleteIn(Finish::CommitAfter("never".to_owned()));
    let id = stage.enqueue(job("again").run([never]).run([commit()]));
    eventually("the transaction is open", || {
        let open = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
             WHERE c.relname = 'effect' AND c.relnamespace = current_schema()::regnamespace AND mode = 'RowExclusiveLock'";
        (stage.place.number(open) > 0).then_some(())
    });
    victim.signal("KILL");
    victim.wait_end();
    assert_eq!(stage.effects(id), 0);
    stage.work(&short_lease());
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count, stage.effects(id)), (2, 1, 1));
}
