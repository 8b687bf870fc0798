//! Leases that are extended, and claims that are looked up.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn renew(db: &mut Db, worker: &str, runs: &[RunId]) -> Vec<(RunId, bool)> {
    let rows = runs.iter().map(|run| (*run, 500.0)).collect();
    match db.ask(&Statement::Renew(Renew { worker: worker.into(), rows })) {
        Reply::Renewed(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_extends_the_leases_of_its_own_runs_only() {
    let mut db = Db::new();
    let (mine, others) = (db.claimed_one(ME), db.claimed_one(OTHER));
    let earlier = RunId { run: 0, ..mine };
    assert_eq!(renew(&mut db, ME, &[others, earlier]), []);
    assert_eq!(renew(&mut db, ME, &[others, mine]), [(mine, false)]);
    let sql = "SELECT claimed_by FROM {schema}.live WHERE claim_expires_at > now() + interval '400 s'";
    assert_eq!(db.value::<String>(sql), ME);
}

#[test]
fn an_expired_claim_that_nobody_has_taken_can_still_be_renewed() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.expire();
    assert_eq!(renew(&mut db, ME, &[run]), [(run, false)]);
}

#[test]
fn a_renewal_tells_which_jobs_are_to_be_cancelled() {
    let mut db = Db::new();
    let (first, second) = (db.claimed_one(ME), db.claimed_one(ME));
    db.request_cancel(second.job);
    let mut rows = renew(&mut db, ME, &[second, first]);
    rows.sort_unstable();
    assert_eq!(rows, [(first, false), (second, true)]);
}

#[test]
fn a_renewal_never_waits_for_a_locked_row() {
    let mut db = Db::new();
    let (locked, free) = (db.claimed_one(ME), db.claimed_one(ME));
    let mut second = session();
    let mut open = second.transaction().unwrap();
    open.batch_execute(&db.render(&format!("SELECT 1 FROM {{schema}}.live WHERE id = {} FOR UPDATE", locked.job)))
        .unwrap();
    assert_eq!(renew(&mut db, ME, &[locked, free]), [(free, false)]);
}

fn held(db: &mut Db, known: &[RunId]) -> Vec<(RunId, bool)> {
    match db.ask(&Statement::Held(Held { worker: ME.into(), runs: known.to_vec() })) {
        Reply::Held(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_is_told_which_of_its_runs_have_completed_their_jobs_by_themselves() {
    let mut db = Db::new();
    let [failed, done, requeued, held_still] = std::array::from_fn(|_| db.claimed_one(ME));
    let others = db.claimed_one(OTHER);
    db.settle_one(ME, bare(failed, Ending::Dead));
    for (worker, run) in [(ME, done), (ME, requeued), (OTHER, others)] {
        db.settle_one(worker, bare(run, Ending::Completed));
    }
    db.run(&format!(
        "INSERT INTO {{schema}}.journal (job_id, run_no, event, claimed_by) VALUES ({}, 1, 3, '{ME}'); \
         DELETE FROM {{schema}}.finished WHERE id = {}",
        requeued.job, requeued.job
    ));
    let rows = held(&mut db, &[failed, done, requeued, held_still, others]);
    assert_eq!(rows, [(held_still, false), (done, true), (requeued, true)]);
}

#[test]
fn a_worker_can_ask_what_it_holds() {
    let mut db = Db::new();
    let (first, second) = (db.claimed_one(ME), db.claimed_one(ME));
    db.claimed_one(OTHER);
    db.settle_one(ME, bare(first, Ending::Completed));
    assert_eq!(held(&mut db, &[]), [(second, false)]);
}

#[test]
fn renewals_and_settlements_of_the_same_rows_never_deadlock() {
    const ROUNDS: usize = 25;
    let mut db = Db::new();
    db.enqueue(vec![job("a"); 200]);
    let runs: Vec<RunId> = db.claim(claim(ME)).jobs.iter().map(|job| job.id).collect();
    let (texts, over) = (db.texts.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let renewals = scope.spawn(|| renew_until(&over, &texts));
        let settled = {
            let _over = EndsWhenDropped(&over);
            settle_all(&mut db, &runs, ROUNDS)
        };
        assert!(renewals.join().unwrap() > 0, "something was renewed meanwhile");
        assert_eq!(settled, runs.len() * ROUNDS);
    });
}

/// Also when a settlement panics: the scope waits for the renewals.
struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Renews whatever is held, backwards, so that two that wait for each other would meet head-on; counts the leases.
fn renew_until(over: &AtomicBool, texts: &Texts) -> usize {
    let mut client = session();
    let sql = client.prepare(texts.sql(Text::Renew)).unwrap();
    let mut renewed = 0;
    while !over.load(Ordering::Relaxed) {
        let Reply::Held(held) = ask(&mut client, texts, &Statement::Held(Held { worker: ME.into(), runs: Vec::new() }))
        else {
            panic!()
        };
        let mut held: Vec<RunId> = held.into_iter().map(|(id, _)| id).collect();
        held.sort_unstable_by(|one, other| other.cmp(one));
        let ids: Vec<i64> = held.iter().map(|run| run.job).collect();
        let runs: Vec<i32> = held.iter().map(|run| run.run).collect();
        renewed += client.query(&sql, &[&ME, &ids, &runs, &vec![60.0; ids.len()]]).unwrap().len();
    }
    renewed
}

/// Pauses and reclaims all runs, round by round, and counts what was accepted; a busy row is sent again.
fn settle_all(db: &mut Db, runs: &[RunId], rounds: usize) -> usize {
    let mut accepted = 0;
    let mut current = runs.to_vec();
    for _ in 0..rounds {
        let mut left = current.clone();
        while !left.is_empty() {
            let answers = db.settle(ME, left.iter().map(|run| bare(*run, Ending::Paused)).collect());
            assert!(
                answers.iter().all(|(_, answer)| matches!(answer, Settled::Accepted | Settled::Busy)),
                "{answers:?}"
            );
            accepted += answers.iter().filter(|(_, answer)| *answer == Settled::Accepted).count();
            left = answers.iter().filter(|(_, answer)| *answer == Settled::Busy).map(|(id, _)| *id).collect();
        }
        current.clear();
        while current.len() < runs.len() {
            // A renewal may still hold rows that it found changed.
            current.extend(db.claim(claim(ME)).jobs.iter().map(|job| job.id));
        }
    }
    accepted
}
