//! What becomes of claims whose lease has run out.

use super::*;

fn stale(db: &mut Db, look_back: f64) -> Vec<StaleRow> {
    match db.ask(&Statement::Stale(Stale { worker: ME.into(), look_back, most: 10 })) {
        Reply::Stale(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn recover(db: &mut Db, rows: Vec<Recovery>) -> Vec<Recovered> {
    match db.ask(&Statement::Recover(Recover { rows })) {
        Reply::Recovered(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn decided(id: RunId) -> Recovery {
    Recovery { id, claimed_by: OTHER.into(), dead: false, delay: 0.0 }
}

#[test]
fn only_claims_of_others_that_ran_out_within_the_look_back_are_stale() {
    let mut db = Db::new();
    let run = db.claimed_one(OTHER);
    assert_eq!(stale(&mut db, ALWAYS), [], "its lease has not run out");
    db.claimed_one(ME);
    db.expire();
    let expected = StaleRow { id: run, kind: "a".into(), failure_count: 0, claimed_by: OTHER.into() };
    assert_eq!(stale(&mut db, ALWAYS), [expected]);
    assert_eq!(stale(&mut db, 1.0), [], "it ran out longer ago");
}

#[test]
fn the_claims_that_ran_out_first_are_found_first() {
    let mut db = Db::new();
    let runs: Vec<RunId> = (0..3).map(|_| db.claimed_one(OTHER)).collect();
    db.run("UPDATE {schema}.live SET claim_expires_at = now() - make_interval(mins => id::int)");
    let found: Vec<RunId> = stale(&mut db, ALWAYS).into_iter().map(|row| row.id).collect();
    assert_eq!(found, [runs[2], runs[1], runs[0]]);
    let one = db.ask(&Statement::Stale(Stale { worker: ME.into(), look_back: ALWAYS, most: 1 }));
    assert!(matches!(one, Reply::Stale(rows) if rows.len() == 1 && rows[0].id == runs[2]));
}

#[test]
fn a_job_whose_worker_died_is_put_back_with_a_failure_and_an_entry() {
    let mut db = Db::new();
    let run = db.claimed_one(OTHER);
    db.run("UPDATE {schema}.live SET carry = '5', claim_expires_at = '2026-01-02 03:04:05.678+00'");
    let rows = recover(&mut db, vec![Recovery { delay: 100.0, ..decided(run) }]);
    assert_eq!(rows, [Recovered { job: run.job, kind: "a".into(), status: JobStatus::Pending, delay: 100.0 }]);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.runs, row.failures, row.carry.as_deref()), ("pending", 1, 1, Some("5")));
    assert!(row.is_due_in(100.0) && row.claimed_by.is_none(), "{row:?}");
    let note = format!("lease expired at 2026-01-02T03:04:05.678Z, held by {OTHER}");
    assert_eq!(db.history(run.job), [(1, "stale-recovered".into(), Some(note))]);
}

#[test]
fn a_job_at_its_backstop_dies_of_its_lost_lease() {
    let mut db = Db::new();
    let run = db.claimed_one(OTHER);
    db.expire();
    let rows = recover(&mut db, vec![Recovery { dead: true, ..decided(run) }]);
    assert_eq!(rows[0].status, JobStatus::Dead);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.outcome.as_deref(), row.failures), ("dead", Some("stale-recovered"), 1));
    assert!(row.note.is_some_and(|note| note.starts_with("lease expired at ") && note.ends_with(OTHER)));
    assert_eq!(db.history(run.job)[0].1, "stale-recovered");
}

#[test]
fn a_job_that_was_asked_to_be_cancelled_is_cancelled_when_its_lease_runs_out() {
    let mut db = Db::new();
    for dead in [false, true] {
        let run = db.claimed_one(OTHER);
        db.request_cancel(run.job);
        db.expire();
        let rows = recover(&mut db, vec![Recovery { dead, ..decided(run) }]);
        assert_eq!(rows, [Recovered { job: run.job, kind: "a".into(), status: JobStatus::Cancelled, delay: 0.0 }]);
        let row = db.job(run.job);
        assert_eq!((row.status.as_str(), row.outcome.as_deref()), ("cancelled", Some("stale-recovered")));
    }
}

#[test]
fn a_claim_that_was_renewed_reclaimed_settled_or_locked_meanwhile_is_left_alone() {
    let mut db = Db::new();
    let runs: Vec<RunId> = (0..5).map(|_| db.claimed_one(OTHER)).collect();
    let [renewed, reclaimed, released, locked, expired] = runs[..] else { unreachable!() };
    db.expire();
    db.ask(&Statement::Renew(Renew { worker: OTHER.into(), rows: vec![(renewed, 60.0)] }));
    db.settle_one(OTHER, bare(reclaimed, Ending::Released));
    db.claim_one(OTHER, reclaimed.job);
    db.run(&format!(
        "UPDATE {{schema}}.live SET claim_expires_at = now() - interval '1 s' WHERE id = {}",
        reclaimed.job
    ));
    db.settle_one(OTHER, bare(released, Ending::Released));
    let mut second = session();
    let mut open = second.transaction().unwrap();
    open.batch_execute(&db.render(&format!("SELECT 1 FROM {{schema}}.live WHERE id = {} FOR UPDATE", locked.job)))
        .unwrap();
    let rows = recover(&mut db, runs.iter().map(|run| decided(*run)).collect());
    assert_eq!(rows.iter().map(|row| row.job).collect::<Vec<_>>(), [expired.job]);
    let other_worker = Recovery { claimed_by: ME.into(), ..decided(locked) };
    open.rollback().unwrap();
    assert_eq!(recover(&mut db, vec![other_worker]), [], "claimed by somebody else than was found");
    assert_eq!(recover(&mut db, vec![decided(locked)]).len(), 1);
}

#[test]
fn two_recoveries_of_one_claim_count_one_failure() {
    let mut db = Db::new();
    let run = db.claimed_one(OTHER);
    db.expire();
    assert_eq!(recover(&mut db, vec![decided(run)]).len(), 1);
    assert_eq!(recover(&mut db, vec![decided(run)]), []);
    assert_eq!(db.job(run.job).failures, 1);
}
