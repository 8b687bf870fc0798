//! Completed jobs that are deleted instead of kept.

use super::*;

fn discarding(rows: Vec<Settlement>) -> Statement {
    Statement::Exchange { settle: Some(Settle { worker: ME.into(), rows, discard: true, brief: false }), claim: None }
}

fn answers(db: &mut Db, rows: Vec<Settlement>) -> Vec<Settled> {
    match db.ask(&discarding(rows)) {
        Reply::Exchange { settled, .. } => settled.into_iter().map(|(_, answer)| answer).collect(),
        other => panic!("{other:?}"),
    }
}

fn left(db: &mut Db) -> [i64; 4] {
    ["live", "finished", "payload", "journal"]
        .map(|table| db.value(&format!("SELECT count(*) FROM {{schema}}.{table}")))
}

/// A job with a large payload and a journal, in its second run.
fn second_run() -> (Db, RunId) {
    let mut db = Db::new();
    let large = json(&format!("\"{}\"", "x".repeat(5_000)));
    let id = db.enqueue(vec![NewJob { payload: large, ..job("a") }])[0];
    let first = db.claim_one(ME, id);
    db.settle_one(ME, bare(first, Ending::Retried));
    let second = db.claim_one(ME, id);
    assert_eq!(left(&mut db), [1, 0, 1, 1]);
    (db, second)
}

#[test]
fn a_completed_job_leaves_nothing_when_it_is_discarded() {
    let (mut db, second) = second_run();
    assert_eq!(answers(&mut db, vec![bare(second, Ending::Completed)]), [Settled::Accepted]);
    assert_eq!(left(&mut db), [0; 4]);
    assert_eq!(answers(&mut db, vec![bare(second, Ending::Completed)]), [Settled::Landed], "its reply was lost");
}

#[test]
fn what_did_not_complete_is_kept() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![job("a"), job("a")]);
    let runs: Vec<RunId> = db.claim(claim(ME)).jobs.iter().map(|job| job.id).collect();
    assert_eq!(runs.len(), ids.len());
    let rows = vec![bare(runs[0], Ending::Dead), bare(runs[1], Ending::Paused)];
    assert_eq!(answers(&mut db, rows), [Settled::Accepted, Settled::Accepted]);
    assert_eq!(left(&mut db), [1, 1, 0, 1]);
    let lost = RunId { run: 7, ..runs[1] };
    assert_eq!(answers(&mut db, vec![bare(lost, Ending::Completed)]), [Settled::Refused]);
}

#[test]
fn a_brief_settlement_discards_payload_and_journal_too() {
    let (mut db, second) = second_run();
    db.ask(&brief(vec![bare(second, Ending::Completed)], true));
    assert_eq!(left(&mut db), [0; 4]);
}
