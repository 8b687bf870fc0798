//! What is stored of a new job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::limits::MAX_DUE;

#[test]
fn new_jobs_get_ascending_numbers_in_the_order_of_the_request() {
    let mut db = Db::new();
    let kinds: Vec<String> = (0..50).map(|n| format!("kind {n}")).collect();
    let ids = db.enqueue(kinds.iter().map(|kind| job(kind)).collect());
    assert!(ids.is_sorted(), "{ids:?}");
    let stored: Vec<String> =
        db.rows("SELECT kind FROM {schema}.live ORDER BY created_at, id").iter().map(|row| row.get(0)).collect();
    assert_eq!(stored, kinds, "age follows the same order");
}

#[test]
fn a_delayed_job_is_scheduled_and_one_without_delay_is_ready() {
    let mut db = Db::new();
    let ids = db.enqueue(vec![
        NewJob { delay: 100.0, dedup_key: Some("key".into()), ..job("a") },
        NewJob { delay: -5.0, priority: Priority::High, ..job("b") },
    ]);
    let rows = db.rows("SELECT state, priority, dedup_key FROM {schema}.live ORDER BY id");
    let stored: Vec<(i16, i16, Option<String>)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(stored, [(1, 1, Some("key".into())), (0, 0, None)]);
    assert!(db.job(ids[0]).is_due_in(100.0) && db.job(ids[1]).is_due_in(0.0));
}

/// The same rows by both ways: in one INSERT, and copied.
fn both_ways(rows: impl Fn() -> Vec<NewJob>, look: impl Fn(&mut Db, Vec<NewId>)) {
    let mut db = Db::new();
    let Reply::Enqueued(ids) = db.ask(&enqueue(rows())) else { panic!() };
    look(&mut db, ids);
    let mut db = Db::new();
    let jobs = NewJobs::new(rows());
    let Reply::Reserved(numbers) = db.ask(&Statement::Reserve(jobs.len() as i32)) else { panic!() };
    let Reply::Enqueued(ids) = db.ask(&Statement::Copy(CopyJobs { jobs, numbers })) else { panic!() };
    look(&mut db, ids);
}

/// The same rows also with a key each, by the function.
fn all_ways(rows: impl Fn() -> Vec<NewJob>, look: impl Fn(&mut Db, Vec<NewId>)) {
    both_ways(&rows, &look);
    let mut db = Db::new();
    let keyed = |(nth, job)| KeyedJob {
        job: Arc::new(NewJob { dedup_key: Some(format!("key {nth}")), ..job }),
        stance: None,
        skip: Vec::new(),
    };
    let rows = rows().into_iter().enumerate().map(|it| Arc::new(keyed(it))).collect();
    let Reply::Keyed(answers) = db.ask(&Statement::EnqueueKeyed(EnqueueKeyed { rows, wait: false, notify: false }))
    else {
        panic!()
    };
    let ids = answers.into_iter().map(|answer| match answer {
        KeyedAnswer::Stored { id, due_in, .. } => NewId { id, due_in: Some(due_in) },
        other => panic!("{other:?}"),
    });
    let ids = ids.collect();
    look(&mut db, ids);
}

#[test]
fn a_copied_row_is_what_an_inserted_one_is() {
    let rows = || {
        vec![
            NewJob { delay: 100.0, dedup_key: Some("ké".into()), payload: json(r#"{"a": "\u0000é"}"#), ..job("a") },
            NewJob { delay: -5.0, priority: Priority::Low, trace: Some("00-é".into()), ..job("ö b") },
            NewJob { delay: f64::MAX, ..job("a") },
            NewJob { payload: json(&format!("\"{}\"", "x".repeat(1_022))), ..job("a") },
            NewJob { payload: json(&format!("\"{}\"", "x".repeat(1_023))), ..job("a") },
        ]
    };
    let seen = std::cell::RefCell::new(Vec::new());
    both_ways(rows, |db, ids| {
        let sql = "SELECT id, state, kind, priority, dedup_key, payload::text, run_count, failure_count, claimed_by, carry::text, trace,
                          (SELECT body::text FROM {schema}.payload p WHERE p.job_id = l.id) AS apart,
                          round(extract(epoch FROM visible_at - created_at), 3)::text AS wait,
                          abs(extract(epoch FROM now() - created_at)) < 60 AS fresh
                   FROM {schema}.live l ORDER BY id";
        let sql = format!("SELECT row_to_json(r)::text FROM ({sql}) r");
        let stored: Vec<String> = db.rows(&sql).iter().map(|row| row.get(0)).collect();
        let waits: Vec<Option<f64>> = ids.iter().map(|id| id.due_in.map(f64::round)).collect();
        seen.borrow_mut().push((stored, waits, ids.iter().map(|id| id.id).collect::<Vec<_>>()));
    });
    let seen = seen.into_inner();
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].0.iter().all(|row| row.contains(r#""fresh":true"#)), "{seen:?}");
}

#[test]
fn an_instant_is_stored_as_given_and_compared_by_the_server() {
    let century = Duration::from_secs(4_102_444_800);
    let due = [UNIX_EPOCH, UNIX_EPOCH + century + Duration::from_micros(7), UNIX_EPOCH + MAX_DUE];
    let rows = || due.iter().map(|at| NewJob { due_at: Some(*at), ..job("a") }).collect();
    all_ways(rows, |db, ids| {
        let stored = db.rows("SELECT visible_at, state FROM {schema}.live ORDER BY id");
        let stored: Vec<(SystemTime, i16)> = stored.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(stored[1..], [(due[1], 1), (due[2], 1)]);
        assert_eq!(stored[0].1, 0);
        let waits: Vec<f64> = ids.iter().map(|id| id.due_in.unwrap_or_default()).collect();
        assert!(waits[0] <= 0.0 && waits[1] > 86_400.0 && waits[2] > waits[1], "{waits:?}");
    });
}

#[test]
fn a_past_instant_is_stored_as_now() {
    let rows = || vec![NewJob { due_at: Some(UNIX_EPOCH), ..job("a") }];
    all_ways(rows, |db, ids| {
        assert_eq!(ids[0].due_in.unwrap_or_default(), 0.0);
        assert!(db.value::<bool>("SELECT visible_at = created_at AND state = 0 FROM {schema}.live"));
        assert!(db.job(ids[0].id).is_due_in(0.0), "so it has waited since then, not since 1970");
    });
}

#[test]
fn a_copy_that_fails_stores_nothing() {
    let mut db = Db::new();
    let large = json(&format!("\"{}\"", "x".repeat(2_000)));
    let jobs = NewJobs::new(vec![NewJob { payload: large, ..job("a") }, job(&"k".repeat(101))]);
    let copy = Statement::Copy(CopyJobs { jobs, numbers: Numbers { ids: vec![1, 2], at: 0 } });
    let texts = db.texts.clone();
    let error = try_ask(&mut db.client, &texts, &copy).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23514");
    assert_eq!(
        db.value::<i64>("SELECT (SELECT count(*) FROM {schema}.live) + (SELECT count(*) FROM {schema}.payload)"),
        0
    );
}

#[test]
fn a_large_payload_is_never_rewritten() {
    let mut db = Db::new();
    let large = json(&format!("\"{}\"", "x".repeat(2_000)));
    let id = db.enqueue(vec![NewJob { payload: large, ..job("a") }])[0];
    let place = |db: &mut Db| {
        let row = &db.rows("SELECT ctid::text, xmin::text, xmax::text FROM {schema}.payload")[0];
        [0, 1, 2].map(|nth| row.get::<_, String>(nth))
    };
    let before = place(&mut db);
    for outcome in [Ending::Retried, Ending::Paused, Ending::Released, Ending::Completed] {
        let run = db.claim_one(ME, id);
        db.settle_one(ME, Settlement { carry: Some(json("[1]")), ..bare(run, outcome) });
    }
    assert_eq!(db.job(id).status, "completed");
    assert_eq!(place(&mut db), before);
}

#[test]
fn a_payload_of_more_than_1024_bytes_goes_to_the_side_table() {
    let mut db = Db::new();
    let of = |bytes: usize| NewJob { payload: json(&format!("\"{}\"", "x".repeat(bytes - 2))), ..job("a") };
    let ids = db.enqueue(vec![of(1_024), of(1_025), of(10)]);
    let inline: Vec<bool> =
        db.rows("SELECT payload IS NOT NULL FROM {schema}.live ORDER BY id").iter().map(|row| row.get(0)).collect();
    assert_eq!(inline, [true, false, true]);
    assert_eq!(db.value::<i64>("SELECT job_id FROM {schema}.payload"), ids[1]);
    let sizes: Vec<i32> = db
        .rows("SELECT octet_length(payload::text) FROM {schema}.jobs ORDER BY id")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(sizes, [1_024, 1_025, 10]);
}

#[test]
fn a_job_of_a_long_transaction_is_as_old_as_its_own_insert() {
    let mut db = Db::new();
    let (texts, sql) = (db.texts.clone(), db.render("SELECT created_at > now() FROM {schema}.live"));
    let mut open = db.client.transaction().unwrap();
    open.batch_execute("SELECT pg_sleep(0.01)").unwrap();
    ask(&mut open, &texts, &enqueue(vec![job("a")]));
    assert!(open.query_one(&sql, &[]).unwrap().get::<_, bool>(0), "now() is the begin of the transaction");
}

#[test]
fn the_tables_refuse_what_no_statement_writes() {
    let mut db = Db::new();
    for values in [
        "(kind) VALUES ('')",
        "(kind, priority) VALUES ('a', 3)",
        "(kind, state) VALUES ('a', 3)",
        "(kind, state) VALUES ('a', 2)",
        "(kind, claimed_by) VALUES ('a', 'w')",
        "(kind, claim_expires_at) VALUES ('a', now())",
        "(kind, cancel_requested_at) VALUES ('a', now())",
        "(kind, failure_count) VALUES ('a', 1)",
        "(kind, state, claimed_by, claim_expires_at) VALUES ('a', 2, 'w', now())",
    ] {
        let error =
            db.client.batch_execute(&render(&format!("INSERT INTO {{schema}}.live {values}"), &db.schema)).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "23514", "{values}");
    }
}

/// What workers hear when this is stored in a transaction of the caller's.
fn heard(db: &mut Db, rows: Vec<NewJob>) -> Vec<String> {
    let inside =
        Inside::Enqueue(Enqueue { calls: vec![NewJobs::new(rows)], channel: Some(db.schema.as_str().to_owned()) });
    let params = inside.params();
    let params = typed(&params);
    db.run("LISTEN {schema}");
    let mut transaction = db.client.transaction().unwrap();
    transaction.query_typed(db.texts.sql(Text::Enqueue), &params).unwrap();
    transaction.commit().unwrap();
    // What was sent by the session itself is there with the next answer.
    let mut heard = Vec::new();
    let mut notifications = db.client.notifications();
    let mut arriving = notifications.timeout_iter(Duration::from_millis(100));
    while let Some(notification) = postgres::fallible_iterator::FallibleIterator::next(&mut arriving).unwrap() {
        heard.push(notification.payload().to_owned());
    }
    heard
}

#[test]
fn workers_hear_of_a_callers_jobs_with_the_commit_and_when_the_first_is_due() {
    let mut db = Db::new();
    let later = |kind: &str, delay| NewJob { delay, ..job(kind) };
    assert_eq!(heard(&mut db, vec![job("a")]), ["v1;a;0"]);
    assert_eq!(heard(&mut db, vec![later("b", 9.0), later("a", 1.5), later("b", 7.0)]), ["v1;a,b;1500"]);
    assert_eq!(heard(&mut db, vec![later("a", 60.0), job("b")]), ["v1;a,b;0"]);
    assert_eq!(heard(&mut db, vec![later("a;b", 1e12)]), ["v1;*;3153600000000"]);
    let past = UNIX_EPOCH;
    assert_eq!(heard(&mut db, vec![NewJob { due_at: Some(past), ..job("a") }]), ["v1;a;0"]);
    let soon = UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let told = heard(&mut db, vec![NewJob { due_at: Some(soon), ..job("a") }]);
    assert!(told[0].strip_prefix("v1;a;").unwrap().parse::<u64>().unwrap() > 1_000_000, "{told:?}");
}
