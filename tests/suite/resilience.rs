//! Lost connections, refused statements and absent servers end no worker and lose no result.

use std::process::Command;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::front::{Front, WorkerSpec};
use super::place::{eventually, for_a_while};
use super::probe::{Kind, Step, job};
use super::stage::Stage;

/// Each job has run once, and nothing but its one result is stored.
fn assert_one_result_each(stage: &Stage<'_>, jobs: &[i64]) {
    for id in jobs {
        let row = stage.place.job(*id);
        assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 1, 0), "job {id}");
        assert_eq!(stage.place.events(*id), ["completed"]);
    }
}

pub(crate) fn connections_that_are_cut_while_idle_come_back(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work_idle(&WorkerSpec::without_polls());
    stage.assert_works("before");
    for round in 0..2 {
        let before = stage.place.backends("true");
        assert_eq!(before.len(), 2, "two connections, whatever the concurrency");
        stage.place.terminate(&before);
        let jobs = stage.enqueue_many(Kind::Plain, (0..5).map(|nth| job(format!("{round}.{nth}"))));
        jobs.iter().for_each(|id| drop(stage.place.wait_status(*id, "completed")));
        assert_one_result_each(&stage, &jobs);
        // What a connection said last is not always LISTEN: it may have told others of a job that it gave back.
        eventually("both are there again", || (stage.place.backends("true").len() == 2).then_some(()));
    }
    stage.assert_works("after");
    assert!(!worker.has_ended());
}

pub(crate) fn connections_that_are_cut_under_a_running_handler_cost_it_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let lease = Some(Duration::from_secs(3));
    stage.work_idle(&WorkerSpec { lease, ..WorkerSpec::without_polls() });
    let jobs = stage.enqueue_many(Kind::Plain, (0..3).map(|_| job("going").waiting("end")));
    stage.wait_start("going", 3);
    stage.place.terminate(&stage.place.backends("true"));
    eventually("there are new connections", || (stage.place.backends("true").len() == 2).then_some(()));
    stage.open("end");
    jobs.iter().for_each(|id| drop(stage.place.wait_status(*id, "completed")));
    assert_one_result_each(&stage, &jobs);
    assert_eq!(stage.look(|book| book.of("going").iter().filter(|run| run.cancelled.is_some()).count()), 0);
}

/// The settlement waits for a table lock when its connection is cut, so it was sent and not committed.
pub(crate) fn a_connection_that_is_cut_while_it_settles_leaves_one_result(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let jobs = stage.enqueue_many(Kind::Plain, (0..3).map(|_| job("going").waiting("end")));
    stage.wait_start("going", 3);
    let mut session = stage.place.session();
    let mut transaction = session.transaction().expect("a transaction");
    transaction.batch_execute("LOCK TABLE finished IN SHARE MODE").expect("a lock");
    stage.open("end");
    let stuck = eventually("the settlement waits", || {
        Some(stage.place.backends("wait_event_type = 'Lock'")).filter(|stuck| !stuck.is_empty())
    });
    stage.place.terminate(&stuck);
    transaction.rollback().expect("a roll-back");
    jobs.iter().for_each(|id| drop(stage.place.wait_status(*id, "completed")));
    assert_one_result_each(&stage, &jobs);
    stage.assert_works("after it");
}

/// Cut again and again, at moments that nobody chose.
pub(crate) fn connections_that_are_cut_all_the_time_lose_and_double_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { concurrency: Some(4), ..WorkerSpec::without_polls() };
    stage.work(&spec);
    stage.work(&spec);
    let ids = stage.enqueue_many(Kind::Plain, (0..400).map(|nth| job(format!("{nth}"))));
    let mut cuts = 0;
    eventually("every job is finished", || {
        if cuts < 12 {
            stage.place.terminate(&stage.place.backends("true"));
            cuts += 1;
        }
        (stage.place.number("SELECT count(*) FROM live") == 0).then_some(())
    });
    assert_eq!(stage.place.number("SELECT count(*) FROM finished WHERE status = 3 AND failure_count = 0"), 400);
    assert_eq!(stage.place.number("SELECT count(*) FROM journal WHERE event <> 8"), 0, "nothing but releases");
    // A claim whose answer was lost is released and counts as a run, although no handler saw it.
    let twice = stage.look(|book| book.runs.iter().filter(|run| book.of(&run.tag).len() > 1).count());
    assert_eq!((twice, ids.len()), (0, 400));
}

/// Makes the server refuse these writes, and count how often it did: a sequence is not rolled back.
fn refuse(stage: &Stage<'_>, event: &str, condition: &str) {
    stage.place.run(&format!(
        "CREATE SEQUENCE refusals; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM nextval('{0}.refusals'); RAISE EXCEPTION 'not this one'; END $$; \
         CREATE TRIGGER refuse BEFORE {event} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()",
        stage.place.schema
    ));
}

fn wait_refusals(stage: &Stage<'_>, count: i64) {
    eventually("the server has refused it", || {
        (stage.place.number("SELECT last_value FROM refusals") >= count).then_some(())
    });
}

pub(crate) fn a_claim_that_the_server_refuses_is_tried_again(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("refused"));
    refuse(&stage, "UPDATE ON live", "NEW.state = 2");
    let worker = stage.work(&WorkerSpec::without_polls());
    wait_refusals(&stage, 3);
    stage.place.run("DROP TRIGGER refuse ON live");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, worker.has_ended()), (1, false));
}

pub(crate) fn a_result_that_the_server_refuses_is_kept_until_it_is_taken(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::without_polls());
    let good = stage.enqueue(job("good").run([Step::Wait("end".to_owned()), Step::Note("good".to_owned())]));
    let bad = stage.enqueue(job("bad").run([Step::Wait("end".to_owned()), Step::Note("bad".to_owned())]));
    stage.wait_starts(2);
    refuse(&stage, "INSERT ON finished", "NEW.note = 'bad'");
    stage.open("end");
    // Its neighbour in the batch is stored, and it is stored itself without what was refused.
    assert_eq!(stage.place.wait_status(good, "completed").note.as_deref(), Some("good"));
    let note = stage.place.wait_status(bad, "completed").note.expect("it says what happened");
    assert!(note.contains("refused") && note.contains("not this one"), "{note}");
    assert_eq!(worker.stop().settled, 2);
}

pub(crate) fn results_wait_for_a_server_that_takes_none_for_a_while(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::without_polls());
    let id = stage.enqueue(job("patient").run([Step::Wait("end".to_owned()), Step::Note("kept".to_owned())]));
    stage.wait_start("patient", 1);
    refuse(&stage, "INSERT ON finished", "true");
    stage.open("end");
    wait_refusals(&stage, 4);
    assert_eq!(stage.place.job(id).status, "claimed");
    stage.place.run("DROP TRIGGER refuse ON finished");
    assert_eq!(stage.place.wait_status(id, "completed").run_count, 1);
    assert_eq!(worker.stop().settled, 1);
}

pub(crate) fn a_server_that_is_away_for_twenty_seconds_ends_nobody(front: &dyn Front) {
    let cluster = Cluster::start().expect("a server of its own");
    let stage = Stage::at(front, cluster.url());
    let spec = WorkerSpec { lease: Some(Duration::from_secs(3)), ..WorkerSpec::without_polls() };
    let workers = [stage.work_idle(&spec), stage.work_idle(&spec)];
    let going = stage.enqueue_many(Kind::Plain, (0..4).map(|_| job("going").waiting("end")));
    let later = stage.enqueue_many(Kind::Plain, (0..30).map(|nth| job(format!("{nth}"))));
    stage.wait_start("going", 4);
    cluster.stop_fast().expect("stopping the server");
    stage.open("end");
    for_a_while(Duration::from_secs(20), "an outage of several leases and of many attempts to connect");
    assert!(workers.iter().all(|worker| !worker.has_ended()));
    cluster.restart().expect("starting the server");
    let back = Instant::now();
    stage.place.reconnect();
    stage.place.wait_all_finished();
    println!("all is finished {:.1?} after the server is back", back.elapsed());
    assert_one_result_each(&stage, &going);
    for id in later {
        assert_eq!((stage.place.job(id).status.as_str(), stage.place.job(id).failure_count), ("completed", 0));
    }
    assert_eq!(stage.place.number("SELECT count(*) FROM journal_entries WHERE event = 'stale-recovered'"), 0);
    assert!(workers.iter().all(|worker| !worker.has_ended()));
    stage.assert_works("the same queue as before");
}

/// The listener's connection and the statements' are independent: without the one, the other goes on.
pub(crate) fn a_worker_that_cannot_listen_at_first_listens_when_it_can(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work_idle(&WorkerSpec { poll_max: Some(Duration::from_millis(200)), ..WorkerSpec::default() });
    for nth in 0..5 {
        stage.place.terminate(&stage.listeners());
        stage.assert_works(&format!("{nth}"));
    }
    eventually("both are there", || (stage.place.backends("true").len() == 2).then_some(()));
    assert!(!worker.has_ended());
}

pub(crate) fn a_second_connection_settles_and_losing_it_costs_no_job(front: &dyn Front) {
    const JOBS: usize = 3_000;
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..JOBS).map(|nth| job(format!("job {nth}"))));
    stage.work(&WorkerSpec { concurrency: Some(16), connections: Some(2), ..WorkerSpec::default() });
    // A connection that settles alone; the one that claims, too, says "exchange_completed".
    let settling = || stage.place.backends("query LIKE '-- settle_completed:%'");
    let done = || stage.place.number("SELECT count(*) FROM finished");
    for part in 1..=3 {
        let pids = eventually("completions have a connection of their own", || {
            let pids = settling();
            (!pids.is_empty() || done() == JOBS as i64).then_some(pids)
        });
        assert!(part > 1 || !pids.is_empty(), "all done over one connection");
        stage.place.terminate(&pids);
    }
    stage.place.wait_all_finished();
    let once = "SELECT count(*) FROM finished WHERE run_count = 1 AND status = 3 AND failure_count = 0";
    assert_eq!(stage.place.number(once), JOBS as i64);
}

/// What writes the log to disk in the background stands still, so that the crash finds the claim in memory alone.
pub(crate) fn a_claim_that_need_not_be_durable_is_forgotten_in_a_crash_and_made_again(front: &dyn Front) {
    let cluster = Cluster::start().expect("a server of its own");
    let stage = Stage::at(front, cluster.url());
    stage.work_idle(&WorkerSpec { durable_claims: Some(false), ..WorkerSpec::without_polls() });
    let writer = cluster.psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").expect("its number");
    let paused = Command::new("kill").args(["-STOP", writer.trim()]).status().expect("a signal");
    assert!(paused.success());
    let id = stage.enqueue(job("going").waiting("end"));
    stage.wait_start("going", 1);
    cluster.stop_immediate().expect("a crash");
    cluster.restart().expect("starting the server");
    stage.place.reconnect();
    stage.open("end");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (1, 0), "the server knows of one run");
    // The same worker may have claimed the job again before the first run ended, whose result then counts for it.
    assert!((1..=2).contains(&stage.look(|book| book.of("going").len())));
    assert_eq!(stage.place.events(id), ["completed"]);
}
