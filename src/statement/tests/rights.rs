//! The roles of `docs/security.md`, made from that page: each can do its work with the rights it names.

use super::*;

const PAGE: &str = include_str!("../../../docs/security.md");

/// Goes on as a role that has been granted what the page says; it is the role of these names.
fn become_role(db: &mut Db, role: &str, parts: &[&str]) {
    let schema = db.schema.as_str().to_owned();
    for part in parts {
        let named = format!("TO {part};");
        let block = PAGE.split("```").find(|block| block.starts_with("sql\n") && block.contains(&named)).unwrap();
        let grants = block.strip_prefix("sql\n").unwrap().replace("venturi", &schema);
        let grants = parts.iter().fold(grants, |sql, it| {
            sql.replace(&format!("TO {it};"), &format!("TO {schema}_{it};"))
                .replace(&format!("GRANT {it}, "), &format!("GRANT {schema}_{it}, "))
        });
        let grants = grants.replace(", reader TO", &format!(", {schema}_reader TO"));
        db.run(&format!("CREATE ROLE {schema}_{part}"));
        db.client.batch_execute(&grants).unwrap();
    }
    db.run(&format!("SET ROLE {schema}_{role}"));
}

fn end(db: &mut Db, parts: &[&str]) {
    let schema = db.schema.as_str().to_owned();
    db.run("RESET ROLE");
    for part in parts.iter().rev() {
        db.run(&format!("DROP OWNED BY {schema}_{part}; DROP ROLE {schema}_{part}"));
    }
}

fn large() -> Json {
    json(&format!("\"{}\"", "x".repeat(2_000)))
}

fn keyed(payload: Json, stance: Option<Stance>) -> Statement {
    let job = NewJob { dedup_key: Some("k".into()), payload, ..job("a") };
    let rows = vec![Arc::new(KeyedJob { job: Arc::new(job), stance, skip: Vec::new() })];
    Statement::EnqueueKeyed(EnqueueKeyed { rows, wait: true, notify: true })
}

fn produce(db: &mut Db) -> i64 {
    db.ask(&Statement::Check);
    let id = db.enqueue(vec![job("a"), NewJob { payload: large(), ..job("a") }])[0];
    let jobs = NewJobs::new(vec![NewJob { payload: large(), ..job("a") }]);
    let Reply::Reserved(numbers) = db.ask(&Statement::Reserve(1)) else { panic!() };
    db.ask(&Statement::Copy(CopyJobs { jobs, numbers }));
    db.ask(&keyed(json("1"), None));
    for payload in [large(), large(), json("2")] {
        let replace = Stance { decision: Decision::Replace, expected: "*".into() };
        db.ask(&keyed(payload, Some(replace)));
    }
    db.ask(&Statement::Notify(Notify::new(db.schema.as_str(), &["a"], std::time::Duration::ZERO, &[])));
    id
}

fn control(db: &mut Db, id: i64) {
    let found = db.inquire(Inquiry::Find(find(JobFilter::new(), &JobStatus::ALL)));
    assert!(matches!(found, Finding::Jobs(jobs) if !jobs.jobs.is_empty()));
    let both = vec![JobStatus::Pending, JobStatus::Claimed];
    let cancelled = db.inquire(Inquiry::Cancel(Touch { ids: vec![id], statuses: both, patient: true }));
    assert!(matches!(&cancelled, Finding::Cancelled(all) if all[0].1 == CancelAnswer::Cancelled), "{cancelled:?}");
    let ended = vec![JobStatus::Cancelled];
    let requeued = db.inquire(Inquiry::Requeue(Touch { ids: vec![id], statuses: ended, patient: true }));
    assert!(
        matches!(&requeued, Finding::Requeued(all) if matches!(all[0].1, RequeueAnswer::Requeued(_))),
        "{requeued:?}"
    );
}

fn read(db: &mut Db, id: i64) {
    db.ask(&Statement::Check);
    for inquiry in [
        Inquiry::Job(id),
        Inquiry::Find(find(JobFilter::new(), &JobStatus::ALL)),
        Inquiry::Journal { job: id, after: 0, most: 10 },
        Inquiry::Stats,
        Inquiry::PausedKinds,
        Inquiry::Workers,
        Inquiry::Diagnose,
        Inquiry::Inventory,
        Inquiry::BackendAge,
        Inquiry::CleanupCount(vec![(JobStatus::Dead, 1.0)]),
    ] {
        db.inquire(inquiry);
    }
    db.rows("SELECT * FROM {schema}.jobs");
    db.rows("SELECT * FROM {schema}.journal_entries");
}

fn clean(db: &mut Db, status: JobStatus) -> Deleted {
    let from = f64::NEG_INFINITY;
    match db.inquire(Inquiry::Cleanup(CleanupBatch { status, age: 0.0, from, most: 100 })) {
        Finding::Deleted(deleted) => deleted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_caller_of_the_function_needs_no_more_than_the_page_says() {
    let mut db = Db::new();
    become_role(&mut db, "caller", &["caller"]);
    db.rows("SELECT {schema}.enqueue('a', to_json(pg_catalog.repeat('x', 2000)), delay => 5)");
    for payload in ["'1'", "to_json(pg_catalog.repeat('x', 2000))", "to_json(pg_catalog.repeat('y', 2000))", "'2'"] {
        for way in ["keep", "replace"] {
            let how = format!("dedup_key => 'k', on_duplicate => '{way}'");
            db.rows(&format!("SELECT {{schema}}.enqueue('a', {payload}, {how})"));
        }
    }
    end(&mut db, &["caller"]);
}

#[test]
fn a_producer_needs_no_more_than_the_page_says() {
    let mut db = Db::new();
    let run = db.claimed_one(OTHER);
    db.expire();
    become_role(&mut db, "producer", &["producer"]);
    let id = produce(&mut db);
    control(&mut db, id);
    db.ask(&Statement::Stale(Stale { worker: ME.into(), look_back: ALWAYS, most: 10 }));
    let row = Recovery { id: run, claimed_by: OTHER.into(), dead: false, delay: 0.0 };
    assert!(
        matches!(db.ask(&Statement::Recover(Recover { rows: vec![row] })), Reply::Recovered(rows) if rows.len() == 1)
    );
    end(&mut db, &["producer"]);
}

#[test]
fn a_worker_needs_no_more_than_the_page_says() {
    let mut db = Db::new();
    let lost = db.claimed_one(OTHER);
    db.expire();
    let ids = db.enqueue((0..7).map(|_| NewJob { payload: large(), ..job("a") }).collect());
    db.enqueue(vec![NewJob { delay: 1_000.0, ..job("b") }]);
    become_role(&mut db, "worker", &["worker"]);
    db.ask(&Statement::Check);
    db.ask(&Statement::Interest(vec![1]));
    db.ask(&Statement::Listen);
    db.ask(&Statement::Survey(survey_of(&["a", "b"], ME)));
    db.ask(&Statement::Promote(Promote { kinds: vec!["a", "b"], look_back: ALWAYS, most: 10 }));
    let runs: Vec<RunId> = db.claim(claim(ME)).jobs.iter().map(|job| job.id).collect();
    assert_eq!(runs.len(), ids.len());
    db.ask(&Statement::Held(Held { worker: ME.into(), runs: runs.clone() }));
    db.ask(&Statement::Renew(Renew { worker: ME.into(), rows: runs.iter().map(|run| (*run, 60.0)).collect() }));
    db.inquire(Inquiry::Cancellations { worker: ME.into(), runs: runs.clone() });
    db.ask(&Statement::Checkpoint(Checkpoint { worker: ME.into(), id: runs[0], carry: json("1") }));
    db.ask(&Statement::History(History { job: runs[0].job, most: 10 }));
    let endings = [Ending::Retried, Ending::Paused, Ending::Released, Ending::Dead];
    let rows = runs.iter().zip(endings).map(|(run, ending)| bare(*run, ending)).collect();
    assert!(db.settle(ME, rows).iter().all(|(_, answer)| *answer == Settled::Accepted));
    db.ask(&brief(vec![bare(runs[4], Ending::Completed)], false));
    db.ask(&brief(vec![bare(runs[5], Ending::Completed)], true));
    let inside = Inside::Complete(Complete { worker: ME.into(), id: runs[6], note: None, attachment: None });
    db.client.query_typed(db.texts.sql(inside.text()), &typed(&inside.params())).unwrap();
    db.ask(&Statement::Stale(Stale { worker: ME.into(), look_back: ALWAYS, most: 10 }));
    let row = Recovery { id: lost, claimed_by: OTHER.into(), dead: true, delay: 0.0 };
    assert!(
        matches!(db.ask(&Statement::Recover(Recover { rows: vec![row] })), Reply::Recovered(rows) if rows.len() == 1)
    );
    clean(&mut db, JobStatus::Completed);
    clean(&mut db, JobStatus::Dead);
    end(&mut db, &["worker"]);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.finished"), 0, "the sweep has deleted them");
}

#[test]
fn a_reader_needs_no_more_than_the_page_says_and_can_change_nothing() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.settle_one(ME, bare(run, Ending::Retried));
    become_role(&mut db, "reader", &["reader"]);
    read(&mut db, run.job);
    let texts = db.texts.clone();
    let error = try_ask(&mut db.client, &texts, &enqueue(vec![job("a")])).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
    end(&mut db, &["reader"]);
}

#[test]
fn an_operator_needs_no_more_than_the_page_says() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.settle_one(ME, bare(run, Ending::Dead));
    let parts = ["producer", "reader", "operator"];
    become_role(&mut db, "operator", &parts);
    let id = produce(&mut db);
    control(&mut db, id);
    read(&mut db, id);
    db.inquire(Inquiry::PauseKind("a".into()));
    db.inquire(Inquiry::PauseKind("a".into()));
    db.inquire(Inquiry::ResumeKind("a".into()));
    assert_eq!(clean(&mut db, JobStatus::Dead).jobs, 1);
    end(&mut db, &parts);
}

#[test]
fn a_function_of_the_owners_enqueues_for_a_role_without_any_right() {
    let mut db = Db::new();
    let schema = db.schema.as_str().to_owned();
    let block = PAGE.split("```").find(|block| block.contains("SECURITY DEFINER SET")).unwrap();
    let sql = block.strip_prefix("sql\n").unwrap().replace("venturi", &schema);
    db.run(&format!("CREATE SCHEMA {schema}_own; SET search_path = {schema}_own"));
    db.client.batch_execute(&sql).unwrap();
    db.run(&format!("CREATE ROLE {schema}_guest; GRANT USAGE ON SCHEMA {schema}_own TO {schema}_guest"));
    db.run(&format!("GRANT EXECUTE ON FUNCTION {schema}_own.enqueue_email TO {schema}_guest; SET ROLE {schema}_guest"));
    let id: i64 = db.value(&format!("SELECT {schema}_own.enqueue_email('ada')"));
    end(&mut db, &["guest"]);
    assert_eq!(db.job(id).status, "pending");
    db.run(&format!("DROP SCHEMA {schema}_own CASCADE"));
}
