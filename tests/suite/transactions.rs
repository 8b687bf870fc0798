//! Jobs and their effects in one transaction.

use std::thread;
use std::time::{Duration, Instant};

use venturi::{Effect, Enqueued, Error, ErrorKind};

use super::child::{self, Mood};
use super::effects;
use super::front::{Front, Inside, Job, WorkerSpec};
use super::place::eventually;
use super::probe::{Blast, Finish, Kind, Manner, Step, job};
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

    fn visit(&self, steps: Vec<Inside>) -> Vec<Result<Vec<Enqueued>, Error>> {
        self.queue().visit(&self.place.url, &self.place.schema, &self.lab, steps)
    }

    /// Two of them at the same time.
    fn visits(&self, steps: [Vec<Inside>; 2]) -> [Vec<Result<Vec<Enqueued>, Error>>; 2] {
        let (queue, place, lab) = (self.queue(), (&self.place.url, &self.place.schema), &self.lab);
        thread::scope(|scope| {
            steps
                .map(|steps| scope.spawn(move || queue.visit(place.0, place.1, lab, steps)))
                .map(|visit| visit.join().expect("no panic"))
        })
    }

    fn jobs(&self) -> i64 {
        self.place.number("SELECT count(*) FROM jobs")
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

const BEGIN: Inside = Inside::Sql("BEGIN");
const COMMIT: Inside = Inside::Sql("COMMIT");
const ROLLBACK: Inside = Inside::Sql("ROLLBACK");

fn keyed(key: &str) -> Inside {
    Inside::Enqueue(job("keyed").keyed(key, Manner::Sum))
}

fn kinds(said: &[Result<Vec<Enqueued>, Error>]) -> Vec<Option<ErrorKind>> {
    said.iter().map(|said| said.as_ref().err().map(Error::kind)).collect()
}

fn effects_of(said: &[Result<Vec<Enqueued>, Error>]) -> Vec<Effect> {
    said.iter().flat_map(|said| said.as_ref().expect("stored")).map(|stored| stored.effect).collect()
}

pub(crate) fn a_job_in_a_transaction_starts_with_the_commit_and_not_before(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    stage.visit(vec![BEGIN, Inside::Enqueue(job("gone")), ROLLBACK]);
    assert_eq!(stage.jobs(), 0);
    let committed = Instant::now();
    let said = stage.visit(vec![BEGIN, Inside::Enqueue(job("there")), COMMIT]);
    let id = said[0].as_ref().expect("stored")[0].id.get();
    let started = stage.wait_start("there", 1).started;
    assert!(started - committed < Duration::from_secs(20), "{:?}", started - committed);
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.starts("gone"), 0);
}

pub(crate) fn many_jobs_in_a_transaction_are_all_there_or_none(front: &dyn Front) {
    let stage = Stage::new(front);
    let many = |count: usize| -> Vec<Job> {
        (0..count)
            .map(|nth| if nth % 3 == 0 { job("k").keyed(format!("{nth}"), Manner::Sum) } else { job("p") })
            .collect()
    };
    stage.visit(vec![BEGIN, Inside::EnqueueMany(Kind::Plain, many(300)), ROLLBACK]);
    assert_eq!(stage.jobs(), 0);
    let said = stage.visit(vec![BEGIN, Inside::EnqueueMany(Kind::Plain, many(1_500)), COMMIT]);
    let stored = said[0].as_ref().expect("stored");
    assert_eq!((stored.len(), stage.jobs()), (1_500, 1_500));
    // In the order of the tasks: each third has a key.
    let keys = "SELECT id FROM live WHERE dedup_key IS NOT NULL ORDER BY dedup_key::int";
    let with_keys: Vec<i64> = stage.place.rows(keys, &[]).iter().map(|row| row.get(0)).collect();
    assert_eq!(with_keys, stored.iter().step_by(3).map(|stored| stored.id.get()).collect::<Vec<_>>());
    // Where there is no transaction, there is one for this.
    let too_large = many(10).into_iter().chain([job("large").with_filler(1_100_000)]).collect();
    let said = stage.visit(vec![Inside::EnqueueMany(Kind::Plain, too_large)]);
    assert_eq!((kinds(&said), stage.jobs()), (vec![Some(ErrorKind::Payload)], 1_500));
}

pub(crate) fn a_client_that_is_in_no_transaction_enqueues_all_the_same(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let steps =
        vec![Inside::Enqueue(job("plain")), keyed("k"), Inside::EnqueueMany(Kind::Plain, vec![job("a"), job("b")])];
    let said = stage.visit(steps);
    assert_eq!(kinds(&said), [None, None, None]);
    stage.place.wait_all_finished();
    assert_eq!(stage.jobs(), 4);
}

pub(crate) fn a_job_with_a_key_merges_inside_the_transaction(front: &dyn Front) {
    let stage = Stage::new(front);
    let said = stage.visit(vec![BEGIN, keyed("k"), keyed("k"), keyed("other"), COMMIT, BEGIN, keyed("k"), ROLLBACK]);
    use Effect::{Inserted, Merged};
    assert_eq!(effects_of(&said), [Inserted, Merged, Inserted, Merged]);
    let amounts = "SELECT (payload->'script'->>'amount')::bigint FROM live WHERE dedup_key = 'k'";
    assert_eq!((stage.place.number(amounts), stage.jobs()), (2, 2), "what was rolled back has not merged");
    // And what the caller had set is as it was.
    let step = Inside::Sql("DO $$ BEGIN ASSERT current_setting('lock_timeout') = '7s'; END $$");
    stage.visit(vec![BEGIN, Inside::Sql("SET LOCAL lock_timeout = '7s'"), keyed("k"), step, COMMIT]);
    let step = Inside::Sql("DO $$ BEGIN ASSERT current_setting('lock_timeout') = '0'; END $$");
    stage.visit(vec![BEGIN, keyed("k"), step, COMMIT]);
    assert_eq!(stage.place.number(amounts), 4);
}

pub(crate) fn a_job_with_a_key_needs_read_committed(front: &dyn Front) {
    let stage = Stage::new(front);
    for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
        let said = stage.visit(vec![Inside::Sql(begin), keyed("k"), Inside::Enqueue(job("without")), COMMIT]);
        assert_eq!(kinds(&said), [Some(ErrorKind::Isolation), None], "{begin}");
    }
    assert_eq!((stage.jobs(), stage.place.number("SELECT count(*) FROM live WHERE dedup_key IS NOT NULL")), (2, 0));
}

pub(crate) fn keys_in_opposite_orders_end_in_an_error_and_not_in_a_hang(front: &dyn Front) {
    let stage = Stage::new(front);
    let begun = Instant::now();
    let said = stage.visits([("a", "b"), ("b", "a")].map(|(first, second)| {
        let (mine, others) = if first == "a" { ("a is taken", "b is taken") } else { ("b is taken", "a is taken") };
        let last = Inside::Enqueue(job("still usable"));
        vec![BEGIN, keyed(first), Inside::Open(mine), Inside::Wait(others), keyed(second), last, COMMIT]
    }));
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let said = said.map(|said| kinds(&said));
    assert!(said.iter().any(|said| said[1] == Some(ErrorKind::Conflict)), "{said:?}");
    assert!(said.iter().all(|said| matches!(said[1], None | Some(ErrorKind::Conflict))), "{said:?}");
    // Both had their first key, and both could go on after the conflict.
    assert!(said.iter().all(|said| said[0].is_none() && said[2].is_none()), "{said:?}");
    let counts = "SELECT count(*) FROM live WHERE dedup_key IN ('a', 'b')";
    assert_eq!((stage.place.number(counts), stage.jobs()), (2, 4));
}

pub(crate) fn a_key_that_stays_taken_is_given_up(front: &dyn Front) {
    let stage = Stage::new(front);
    let holder = vec![BEGIN, keyed("k"), Inside::Open("taken"), Inside::Wait("given up"), COMMIT];
    let other =
        vec![Inside::Wait("taken"), BEGIN, keyed("k"), Inside::Open("given up"), ROLLBACK, BEGIN, keyed("k"), COMMIT];
    let [held, other] = stage.visits([holder, other]).map(|said| kinds(&said));
    assert_eq!((held, other), (vec![None], vec![Some(ErrorKind::Conflict), None]));
    assert_eq!(stage.jobs(), 1);
}

pub(crate) fn many_keys_in_opposite_orders_wait_for_each_other_in_one_order(front: &dyn Front) {
    let stage = Stage::new(front);
    let many = |keys: Vec<usize>| {
        let jobs = |_| keys.iter().map(|key| job("k").keyed(format!("{key}"), Manner::Sum)).collect();
        (0..5).flat_map(|nth| [BEGIN, Inside::EnqueueMany(Kind::Plain, jobs(nth)), COMMIT]).collect::<Vec<_>>()
    };
    let said = stage.visits([many((0..250).collect()), many((0..250).rev().collect())]);
    assert!(said.iter().all(|said| kinds(said).iter().all(Option::is_none)), "{:?}", said.map(|said| kinds(&said)));
    let total = "SELECT sum((payload->'script'->>'amount')::bigint)::bigint FROM live";
    assert_eq!((stage.jobs(), stage.place.number(total)), (250, 2_500));
}

pub(crate) fn an_enqueue_that_fails_leaves_the_transaction_usable(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue(job("pending").keyed("k", Manner::Sum));
    let panics = Inside::Enqueue(job("no way").keyed("k", Manner::Panic));
    let many = Inside::EnqueueMany(Kind::Plain, vec![job("a"), job("no way").keyed("k", Manner::Panic)]);
    let said = stage.visit(vec![BEGIN, panics, many, Inside::Enqueue(job("there")), COMMIT]);
    assert_eq!(kinds(&said), [Some(ErrorKind::Merge), Some(ErrorKind::Merge), None]);
    assert_eq!(stage.jobs(), 2);
}
