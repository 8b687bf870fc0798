//! Rows that nobody but a person could have written, beside good ones: the good ones are served.

use super::*;

/// Runs and failures as many as a row can count.
const COUNTED_OUT: &str = "UPDATE {schema}.live SET run_count = 2147483647, failure_count = 2147483647 WHERE id = ";

/// Four jobs that make no sense, each in its way, and a good one.
fn odd_and_good(db: &mut Db) -> ([i64; 4], i64) {
    let ids = db.enqueue((0..5).map(|_| job("a")).collect());
    let [counted, failed, entered, doubled, good] = ids[..] else { panic!("{ids:?}") };
    db.run(&format!("{COUNTED_OUT}{counted}"));
    db.run(&format!("UPDATE {{schema}}.live SET run_count = 7, failure_count = 7 WHERE id = {failed}"));
    db.run(&format!(
        "INSERT INTO {{schema}}.journal (job_id, run_no, event, claimed_by, note)
         SELECT {entered}, n, 6, 'somebody', 'first' FROM generate_series(1, 2) n"
    ));
    db.run(&format!(
        "INSERT INTO {{schema}}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome,
           kind, claimed_by) VALUES ({doubled}, now(), now(), 9, 0, 1, 3, 3, 'a', 'somebody')"
    ));
    ([counted, failed, entered, doubled], good)
}

fn all(db: &mut Db) -> Vec<RunId> {
    let reply = db.claim(claim(ME));
    assert_eq!(reply.jobs.len(), 5, "{reply:?}");
    reply.jobs.iter().map(|job| job.id).collect()
}

#[test]
fn absurd_counts_fail_neither_the_claim_nor_the_settlement_of_others() {
    let mut db = Db::new();
    let ([counted, failed, entered, _], good) = odd_and_good(&mut db);
    for ending in [Ending::Retried, Ending::Retried, Ending::Dead] {
        let runs = all(&mut db);
        assert!(runs.contains(&RunId { job: counted, run: i32::MAX }), "{runs:?}");
        let answers = db.settle(ME, runs.into_iter().map(|run| bare(run, ending)).collect());
        assert!(answers.iter().all(|(_, answer)| *answer == Settled::Accepted), "{answers:?}");
    }
    assert_eq!((db.job(good).runs, db.job(good).failures), (3, 3));
    assert_eq!((db.job(counted).runs, db.job(counted).failures), (i32::MAX, i32::MAX));
    assert_eq!((db.job(failed).runs, db.job(failed).failures), (10, 10));
    let notes: Vec<_> = db.history(entered).into_iter().map(|(run, _, note)| (run, note)).collect();
    assert_eq!(notes, [(1, Some("first".into())), (2, Some("first".into())), (3, None)], "what was there first stays");
}

#[test]
fn absurd_counts_do_not_keep_others_from_being_recovered() {
    for dead in [false, true] {
        let mut db = Db::new();
        let (_, good) = odd_and_good(&mut db);
        let runs = all(&mut db);
        // More failures than runs before this one, by hand.
        db.run("UPDATE {schema}.live SET failure_count = run_count");
        db.expire();
        let stale = db.ask(&Statement::Stale(Stale { worker: OTHER.into(), look_back: ALWAYS, most: 10 }));
        assert!(matches!(&stale, Reply::Stale(rows) if rows.len() == 5), "{stale:?}");
        let row = |id| Recovery { id, claimed_by: ME.into(), dead, delay: 0.0 };
        let Reply::Recovered(rows) = db.ask(&Statement::Recover(Recover { rows: runs.into_iter().map(row).collect() }))
        else {
            panic!()
        };
        assert_eq!(rows.len(), 5, "{rows:?}");
        assert_eq!(db.job(good).status, if dead { "dead" } else { "pending" });
    }
}
