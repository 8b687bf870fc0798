//! What is stored of a new job.

use super::*;

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
    ask(&mut open, &texts, &Statement::Enqueue(Enqueue { rows: vec![job("a")] }));
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

#[test]
fn a_notification_reaches_those_who_listen_to_the_schema() {
    let mut db = Db::new();
    let mut listener = session();
    let texts = db.texts.clone();
    assert!(matches!(ask(&mut listener, &texts, &Statement::Listen), Reply::Done));
    let notify = Statement::Notify { channel: db.schema.as_str().to_owned(), payload: "hello".into() };
    assert!(matches!(db.ask(&notify), Reply::Done));
    let mut notifications = listener.notifications();
    let mut arrived = notifications.timeout_iter(std::time::Duration::from_secs(10));
    let notification = postgres::fallible_iterator::FallibleIterator::next(&mut arrived).unwrap().unwrap();
    assert_eq!((notification.channel(), notification.payload()), (db.schema.as_str(), "hello"));
}
