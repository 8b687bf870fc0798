//! Cancelling, requeueing, pausing and deleting: what each does to the rows, beside others who do something else.

use super::*;

const BOTH: [JobStatus; 2] = [JobStatus::Pending, JobStatus::Claimed];
const ENDS: [JobStatus; 3] = [JobStatus::Completed, JobStatus::Dead, JobStatus::Cancelled];

fn cancel(db: &mut Db, ids: &[i64]) -> Vec<CancelAnswer> {
    let statuses = BOTH.to_vec();
    match db.inquire(Inquiry::Cancel(Touch { ids: ids.to_vec(), statuses, patient: true })) {
        Finding::Cancelled(answers) => answers.into_iter().map(|(_, answer)| answer).collect(),
        other => panic!("{other:?}"),
    }
}

fn requeue(db: &mut Db, ids: &[i64]) -> Vec<RequeueAnswer> {
    let statuses = ENDS.to_vec();
    match db.inquire(Inquiry::Requeue(Touch { ids: ids.to_vec(), statuses, patient: true })) {
        Finding::Requeued(answers) => answers.into_iter().map(|(_, answer)| answer).collect(),
        other => panic!("{other:?}"),
    }
}

fn clean(db: &mut Db, status: JobStatus, age: f64, from: f64, most: i32) -> Deleted {
    match db.inquire(Inquiry::Cleanup(CleanupBatch { status, age, from, most })) {
        Finding::Deleted(deleted) => deleted,
        other => panic!("{other:?}"),
    }
}

fn switch(db: &mut Db, inquiry: Inquiry) -> bool {
    match db.inquire(inquiry) {
        Finding::Switched(changed) => changed,
        other => panic!("{other:?}"),
    }
}

/// A second session in a transaction that holds what the statement locks.
fn holding(db: &Db, sql: &str) -> Client {
    let mut other = session();
    other.batch_execute(&format!("BEGIN; {}", db.render(sql))).unwrap();
    other
}

fn keyed(kind: &str, key: &str) -> NewJob {
    NewJob { dedup_key: Some(key.into()), ..job(kind) }
}

#[test]
fn a_pending_job_is_cancelled_at_once_ready_or_not() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![job("a"), NewJob { delay: 100.0, ..job("a") }]);
    assert_eq!(cancel(&mut db, &ids), [CancelAnswer::Cancelled; 2]);
    for id in ids {
        let row = db.job(id);
        assert_eq!(
            (row.status.as_str(), row.outcome.as_deref(), row.claimed_by),
            ("cancelled", Some("cancelled"), None)
        );
        assert_eq!(db.history(id), [(0, "cancelled".into(), None)]);
    }
    assert!(db.claim(claim(ME)).jobs.is_empty());
}

#[test]
fn a_running_job_is_asked_to_end_and_ends_as_its_run_says() {
    let mut db = Db::new();
    let ends = [(Ending::Completed, Settled::Accepted, "completed"), (Ending::Paused, Settled::Cancelled, "cancelled")];
    for (ending, answer, status) in ends {
        let run = db.claimed_one(ME);
        assert_eq!(cancel(&mut db, &[run.job]), [CancelAnswer::Requested]);
        assert_eq!(cancel(&mut db, &[run.job]), [CancelAnswer::Requested], "asking again is harmless");
        let look = |worker: &str, run| Inquiry::Cancellations { worker: worker.into(), runs: vec![run] };
        assert!(matches!(db.inquire(look(ME, run)), Finding::Cancellations(runs) if runs == [run]));
        assert!(matches!(db.inquire(look(OTHER, run)), Finding::Cancellations(runs) if runs.is_empty()));
        assert_eq!(db.settle_one(ME, bare(run, ending)), answer);
        assert_eq!(db.job(run.job).status, status);
        assert_eq!(cancel(&mut db, &[run.job]), [CancelAnswer::Finished]);
    }
}

#[test]
fn jobs_that_do_not_exist_or_are_not_meant_are_left_alone() {
    let mut db = Db::new();
    let pending = db.enqueue_one("b");
    let running = db.claimed_one(ME).job;
    let pending_two = db.enqueue_one("b");
    let statuses = vec![JobStatus::Pending];
    let ids = vec![pending_two, running, -7, i64::MIN, i64::MAX, pending_two];
    let asked = Inquiry::Cancel(Touch { ids, statuses, patient: false });
    let Finding::Cancelled(answers) = db.inquire(asked) else { panic!("another answer") };
    let of = |id: i64| answers.iter().filter(|(job, _)| *job == id).map(|(_, answer)| *answer).collect::<Vec<_>>();
    assert_eq!(of(pending_two), [CancelAnswer::Cancelled], "named twice, answered once");
    assert_eq!(of(running), [CancelAnswer::NotTouched]);
    assert_eq!([of(-7), of(i64::MIN), of(i64::MAX)].concat(), [CancelAnswer::NotThere; 3]);
    assert_ne!(db.job(pending).status, "cancelled");
    assert_eq!(requeue(&mut db, &[-7, i64::MAX]), [RequeueAnswer::NotThere, RequeueAnswer::NotThere]);
}

#[test]
fn a_row_that_somebody_holds_is_busy_and_keeps_nobody_waiting() {
    let mut db = Db::new();
    let (held, free) = (db.enqueue_one("a"), db.enqueue_one("a"));
    let mut other = holding(&db, &format!("SELECT 1 FROM {{schema}}.live WHERE id = {held} FOR NO KEY UPDATE"));
    assert_eq!(cancel(&mut db, &[held, free]), [CancelAnswer::Busy, CancelAnswer::Cancelled]);
    other.batch_execute("COMMIT").unwrap();
    assert_eq!(cancel(&mut db, &[held]), [CancelAnswer::Cancelled]);
    let mut other = holding(&db, &format!("SELECT 1 FROM {{schema}}.finished WHERE id = {held} FOR UPDATE"));
    assert_eq!(requeue(&mut db, &[held]), [RequeueAnswer::Busy]);
    assert_eq!(clean(&mut db, JobStatus::Cancelled, 0.0, f64::NEG_INFINITY, 10).jobs, 1, "only the free one");
    other.batch_execute("COMMIT").unwrap();
    assert!(matches!(requeue(&mut db, &[held])[..], [RequeueAnswer::Requeued(_)]));
}

#[test]
fn a_requeued_job_keeps_its_runs_and_forgets_its_failures() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let settled = Settlement {
        note: Some("broken".into()),
        carry: Some(json("7")),
        attachment: Some(json("[]")),
        ..bare(run, Ending::Dead)
    };
    db.settle_one(ME, settled);
    assert_eq!(requeue(&mut db, &[run.job]), [RequeueAnswer::Requeued("a".into())]);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.runs, row.failures, row.carry.as_deref()), ("pending", 1, 0, Some("7")));
    let wanted = [(1, "dead".to_owned(), Some("broken".to_owned())), (1, "requeued".to_owned(), None)];
    assert_eq!(db.history(run.job), wanted);
    assert_eq!(requeue(&mut db, &[run.job]), [RequeueAnswer::NotFinished]);
    let again = db.claim_one(ME, run.job);
    assert_eq!(again.run, 2, "the fence goes on");
    db.settle_one(ME, bare(again, Ending::Completed));
    assert_eq!(db.settle_one(ME, bare(run, Ending::Completed)), Settled::Refused, "the old run has no say");
}

#[test]
fn a_completed_job_starts_afresh_and_its_large_payload_is_still_there() {
    let mut db = Db::new();
    let large = format!("\"{}\"", "x".repeat(5_000));
    let id = db.enqueue(vec![NewJob { payload: json(&large), ..job("a") }])[0];
    let first = db.claim_one(ME, id);
    db.settle_one(ME, Settlement { carry: Some(json("7")), ..bare(first, Ending::Paused) });
    let second = db.claim_one(ME, id);
    db.settle_one(ME, bare(second, Ending::Completed));
    assert!(matches!(requeue(&mut db, &[id])[..], [RequeueAnswer::Requeued(_)]));
    let reply = db.claim(claim(ME));
    assert_eq!(reply.jobs[0].payload.get(), large);
    assert!(reply.jobs[0].carry.is_none());
}

#[test]
fn a_job_whose_key_is_taken_stays_finished() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![keyed("a", "k"), keyed("a", "k"), keyed("b", "k")]);
    cancel(&mut db, &ids);
    let answers = requeue(&mut db, &ids);
    assert_eq!(answers[1], RequeueAnswer::Conflict(ids[0]), "of two that come together the older one comes back");
    assert!(matches!(answers[..], [RequeueAnswer::Requeued(_), _, RequeueAnswer::Requeued(_)]));
    assert_eq!(requeue(&mut db, &[ids[1]]), [RequeueAnswer::Conflict(ids[0])]);
    let run = db.claim_one(ME, ids[0]);
    assert!(matches!(requeue(&mut db, &[ids[1]])[..], [RequeueAnswer::Requeued(_)]), "a running one is no conflict");
    db.settle_one(ME, bare(run, Ending::Completed));
}

#[test]
fn a_key_that_is_being_enqueued_is_busy() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![keyed("a", "k"), job("a")]);
    cancel(&mut db, &ids);
    let schema = db.schema.as_str().to_owned();
    let lock = format!("SELECT pg_advisory_xact_lock(hashtextextended('venturi {schema} a k', 0))");
    let mut other = holding(&db, &lock);
    let answers = requeue(&mut db, &ids);
    assert!(matches!(answers[..], [RequeueAnswer::Busy, RequeueAnswer::Requeued(_)]), "{answers:?}");
    other.batch_execute("COMMIT").unwrap();
    assert!(matches!(requeue(&mut db, &ids[..1])[..], [RequeueAnswer::Requeued(_)]));
}

#[test]
fn jobs_of_a_paused_kind_are_not_claimed_and_not_told_of_as_ready() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![job("a"), job("b")]);
    assert!(switch(&mut db, Inquiry::PauseKind("a".into())));
    assert!(!switch(&mut db, Inquiry::PauseKind("a".into())), "it is paused already");
    let reply = db.claim(claim(ME));
    assert_eq!(super::ids(&reply), [ids[1]]);
    let survey = Statement::Survey(survey_of(&["a", "b"], ME));
    assert!(matches!(db.ask(&survey), Reply::Survey(reply) if !reply.ready), "or a worker would ask for ever");
    assert!(matches!(db.inquire(Inquiry::PausedKinds), Finding::PausedKinds(kinds) if kinds.len() == 1));
    assert!(switch(&mut db, Inquiry::ResumeKind("a".into())));
    assert!(!switch(&mut db, Inquiry::ResumeKind("a".into())));
    assert!(matches!(db.ask(&survey), Reply::Survey(reply) if reply.ready));
    assert_eq!(super::ids(&db.claim(claim(ME))), [ids[0]]);
}

#[test]
fn a_cleanup_deletes_the_old_ones_of_its_status_with_all_that_is_theirs() {
    let mut db = Db::new();
    let large = json(&format!("\"{}\"", "x".repeat(5_000)));
    let ids = db.enqueue((0..5).map(|_| NewJob { payload: large.clone(), ..job("a") }).collect());
    cancel(&mut db, &ids);
    db.run("INSERT INTO {schema}.journal (job_id, run_no, event) SELECT id, 0, 10 FROM {schema}.finished");
    db.run(&format!("UPDATE {{schema}}.finished SET finished_at = now() - interval '1 h' WHERE id < {}", ids[3]));
    db.run(&format!("UPDATE {{schema}}.finished SET status = 4, outcome = 4, claimed_by = 'w' WHERE id = {}", ids[0]));
    let first = clean(&mut db, JobStatus::Cancelled, 600.0, f64::NEG_INFINITY, 1);
    assert_eq!(first.jobs, 1);
    let second = clean(&mut db, JobStatus::Cancelled, 600.0, first.reached.unwrap(), 10);
    assert_eq!(second.jobs, 1, "as old as the one before, and behind it");
    assert_eq!(
        clean(&mut db, JobStatus::Cancelled, 600.0, second.reached.unwrap(), 10),
        Deleted { jobs: 0, reached: None }
    );
    for table in ["finished", "payload"] {
        assert_eq!(db.value::<i64>(&format!("SELECT count(*) FROM {{schema}}.{table}")), 3);
    }
    assert_eq!(db.value::<i64>("SELECT count(DISTINCT job_id) FROM {schema}.journal"), 3);
    assert_eq!(clean(&mut db, JobStatus::Dead, 600.0, f64::NEG_INFINITY, 10).jobs, 1);
    assert_eq!(clean(&mut db, JobStatus::Completed, 0.0, f64::NEG_INFINITY, 10).jobs, 0);
    assert_eq!(
        clean(&mut db, JobStatus::Cancelled, f64::INFINITY, f64::NEG_INFINITY, 10).jobs,
        0,
        "older than a century"
    );
}

#[test]
fn cancelling_beside_claims_and_settlements_loses_and_doubles_no_job() {
    let mut db = Db::new();
    let ids = db.enqueue((0..200).map(|_| job("a")).collect());
    let (texts, wanted) = (db.texts.clone(), ids.clone());
    let worker = std::thread::spawn(move || {
        let mut client = session();
        let mut done = 0;
        loop {
            let take = Claim { want: 7, ..claim(OTHER) };
            let Reply::Exchange { claim: Some(reply), .. } =
                ask(&mut client, &texts, &Statement::Exchange { settle: None, claim: Some(take) })
            else {
                panic!("a claim's reply");
            };
            let rows: Vec<_> = reply.jobs.iter().map(|job| bare(job.id, Ending::Completed)).collect();
            if rows.is_empty() && reply.looked == 0 {
                return done;
            }
            let mut left = rows;
            while !left.is_empty() {
                let Reply::Exchange { settled, .. } = ask(&mut client, &texts, &settlement(OTHER, left.clone())) else {
                    panic!("a settlement's reply");
                };
                done += settled.iter().filter(|(_, answer)| *answer == Settled::Accepted).count();
                left.retain(|row| settled.contains(&(row.id, Settled::Busy)));
            }
        }
    });
    let mut cancelled = 0;
    for id in wanted.iter().rev() {
        loop {
            match cancel(&mut db, &[*id])[0] {
                CancelAnswer::Busy => {}
                CancelAnswer::Cancelled => break cancelled += 1,
                CancelAnswer::Requested | CancelAnswer::Finished => break,
                other => panic!("job {id}: {other:?}"),
            }
        }
    }
    let done = worker.join().unwrap();
    assert_eq!(done + cancelled, 200);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.finished"), 200);
}

#[test]
fn a_row_in_both_tables_fails_no_other() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![job("a"), job("a")]);
    cancel(&mut db, &ids);
    db.run(&format!("INSERT INTO {{schema}}.live (id, kind, payload) VALUES ({}, 'a', '1')", ids[0]));
    let answers = requeue(&mut db, &ids);
    assert!(matches!(answers[..], [RequeueAnswer::Busy, RequeueAnswer::Requeued(_)]), "{answers:?}");
    assert_eq!(cancel(&mut db, &ids), [CancelAnswer::Cancelled; 2]);
}
