//! Jobs that are completed in transactions of their handlers.

use super::*;

fn completion(worker: &str, id: RunId) -> Inside {
    let (note, attachment) = (Some("paid".into()), Some(json("[7]")));
    Inside::Complete(Complete { worker: worker.into(), id, note, attachment })
}

fn complete(client: &mut impl GenericClient, texts: &Texts, worker: &str, id: RunId) -> Settled {
    let inside = completion(worker, id);
    let params = inside.params();
    let params = typed(&params);
    match inside.read(&client.query_typed(texts.sql(inside.text()), &params).unwrap()).unwrap() {
        Reply::Completed(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_completion_counts_when_its_transaction_is_committed() {
    let mut db = Db::new();
    let id = db.claimed_one(ME);
    let texts = db.texts.clone();
    for commit in [false, true] {
        let mut transaction = db.client.transaction().unwrap();
        assert_eq!(complete(&mut transaction, &texts, ME, id), Settled::Accepted);
        if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
        assert_eq!(db.job(id.job).status, if commit { "completed" } else { "claimed" });
    }
    let row = db.job(id.job);
    assert_eq!((row.note.as_deref(), row.attachment.as_deref(), row.runs), (Some("paid"), Some("[7]"), 1));
    assert_eq!(row.outcome.as_deref(), Some("completed"));
}

#[test]
fn a_completion_is_refused_unless_the_claim_is_still_this_runs() {
    let mut db = Db::new();
    let (id, texts) = (db.claimed_one(ME), db.texts.clone());
    assert_eq!(complete(&mut db.client, &texts, OTHER, id), Settled::Refused);
    assert_eq!(complete(&mut db.client, &texts, ME, RunId { run: 2, ..id }), Settled::Refused);
    assert_eq!(complete(&mut db.client, &texts, ME, RunId { job: 99, ..id }), Settled::Refused);
    assert_eq!(db.job(id.job).status, "claimed");
    db.settle_one(ME, bare(id, Ending::Paused));
    assert_eq!(complete(&mut db.client, &texts, ME, id), Settled::Refused);
}

#[test]
fn a_run_that_completes_its_job_twice_is_told_so() {
    let mut db = Db::new();
    let (id, texts) = (db.claimed_one(ME), db.texts.clone());
    let mut transaction = db.client.transaction().unwrap();
    assert_eq!(complete(&mut transaction, &texts, ME, id), Settled::Accepted);
    assert_eq!(complete(&mut transaction, &texts, ME, id), Settled::Completed);
    transaction.commit().unwrap();
    assert_eq!(complete(&mut db.client, &texts, ME, id), Settled::Completed);
}

#[test]
fn a_completion_stands_whatever_the_run_says_later() {
    let mut db = Db::new();
    let texts = db.texts.clone();
    for (outcome, answer) in [
        (Ending::Completed, Settled::Landed),
        (Ending::Retried, Settled::Completed),
        (Ending::Dead, Settled::Completed),
        (Ending::Paused, Settled::Completed),
        (Ending::Released, Settled::Completed),
    ] {
        let id = db.claimed_one(ME);
        complete(&mut db.client, &texts, ME, id);
        assert_eq!(db.settle_one(ME, bare(id, outcome)), answer, "{outcome:?}");
        assert_eq!(db.settle_one(OTHER, bare(id, outcome)), Settled::Refused, "{outcome:?} of another");
        assert_eq!(db.job(id.job).status, "completed");
    }
}

#[test]
fn a_job_that_is_to_be_cancelled_can_still_be_completed() {
    let mut db = Db::new();
    let (id, texts) = (db.claimed_one(ME), db.texts.clone());
    db.request_cancel(id.job);
    assert_eq!(complete(&mut db.client, &texts, ME, id), Settled::Accepted);
    assert_eq!(db.job(id.job).status, "completed");
}

/// Nobody who might meet an open completion waits for it.
#[test]
fn an_open_completion_keeps_nobody_waiting() {
    let mut db = Db::new();
    let (open, free, texts) = (db.claimed_one(ME), db.claimed_one(ME), db.texts.clone());
    db.expire();
    let mut second = session();
    let mut transaction = second.transaction().unwrap();
    complete(&mut transaction, &texts, ME, open);
    let renew = Statement::Renew(Renew { worker: ME.into(), rows: vec![(open, 60.0), (free, 60.0)] });
    assert!(matches!(db.ask(&renew), Reply::Renewed(rows) if rows == [(free, false)]));
    assert_eq!(db.settle_one(ME, bare(open, Ending::Retried)), Settled::Busy);
    let recovery = Recovery { id: open, claimed_by: ME.into(), dead: false, delay: 0.0 };
    assert!(
        matches!(db.ask(&Statement::Recover(Recover { rows: vec![recovery] })), Reply::Recovered(rows) if rows.is_empty())
    );
    transaction.commit().unwrap();
    assert_eq!(db.job(open.job).status, "completed");
    assert_eq!(db.settle_one(ME, bare(open, Ending::Retried)), Settled::Completed);
}

/// The row has changed between the transaction's snapshot and its lock, but not its claim.
#[test]
fn a_renewal_in_between_does_not_disturb_a_completion() {
    let mut db = Db::new();
    let (id, texts) = (db.claimed_one(ME), db.texts.clone());
    let mut second = session();
    let mut transaction = second.transaction().unwrap();
    transaction.query_one("SELECT 1", &[]).unwrap();
    db.ask(&Statement::Renew(Renew { worker: ME.into(), rows: vec![(id, 60.0)] }));
    assert_eq!(complete(&mut transaction, &texts, ME, id), Settled::Accepted);
    transaction.commit().unwrap();
}
