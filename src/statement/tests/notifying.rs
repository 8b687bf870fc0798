//! Who is told, and when nobody is.

use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;

use super::*;
use crate::interest;

const PATIENCE: Duration = Duration::from_secs(20);

/// One who listens and is interested in nothing, and so hears what is told for others.
fn listener(db: &Db) -> Client {
    let mut listener = session();
    assert!(matches!(ask(&mut listener, &db.texts, &Statement::Listen), Reply::Done));
    listener
}

/// Takes the interest of a worker of these kinds.
fn interested(db: &Db, kinds: &[&str]) -> Client {
    let mut session = session();
    let keys = interest::of_worker(db.schema.as_str(), kinds);
    assert!(matches!(ask(&mut session, &db.texts, &Statement::Interest(keys)), Reply::Done));
    session
}

/// Says that there is news of these kinds; whether anybody was told.
fn tell(db: &mut Db, kinds: &[&str]) -> bool {
    let notify = news(db, kinds);
    told(db.ask(&notify))
}

fn news(db: &Db, kinds: &[&str]) -> Statement {
    Statement::Notify(Notify::new(db.schema.as_str(), kinds, Duration::ZERO, &[]))
}

fn told(reply: Reply) -> bool {
    let Reply::Notified(told) = reply else { panic!("{reply:?}") };
    told
}

/// Everything that was sent until now.
fn heard(db: &mut Db, listener: &mut Client) -> Vec<String> {
    let (channel, payload) = (db.schema.as_str().to_owned(), "the end".to_owned());
    assert!(told(db.ask(&Statement::Notify(Notify { channel: channel.clone(), payload, keys: Vec::new() }))));
    let mut heard = Vec::new();
    loop {
        let next = listener.notifications().timeout_iter(PATIENCE).next().unwrap().expect("the end comes");
        assert_eq!(next.channel(), channel);
        if next.payload() == "the end" {
            return heard;
        }
        heard.push(next.payload().to_owned());
    }
}

#[test]
fn news_of_a_kind_are_told_if_somebody_is_interested_in_it_and_else_not() {
    let mut db = Db::new();
    let mut listener = listener(&db);
    assert!(!tell(&mut db, &["a"]), "listening alone is no interest");
    let _worker = interested(&db, &["a", "b"]);
    let others: Vec<bool> = [&["c"][..], &["c", "d"], &["A"]].map(|kinds| tell(&mut db, kinds)).into();
    assert_eq!(others, [false; 3]);
    let theirs: Vec<bool> = [&["a"][..], &["b"], &["c", "b"]].map(|kinds| tell(&mut db, kinds)).into();
    assert_eq!(theirs, [true; 3]);
    assert_eq!(heard(&mut db, &mut listener), ["v1;a;0", "v1;b;0", "v1;c,b;0"]);
}

#[test]
fn an_interest_in_more_kinds_than_locks_is_told_of_every_kind() {
    let mut db = Db::new();
    let kinds: Vec<String> = (0..40).map(|nth| format!("kind {nth}")).collect();
    let _worker = interested(&db, &kinds.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(tell(&mut db, &["kind 39"]) && tell(&mut db, &["foreign"]));
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock' \
                 AND classid::bigint << 32 | objid::bigint = ";
    let key = interest::of_worker(db.schema.as_str(), &["*"])[0];
    assert_eq!(db.value::<i64>(&format!("{locks} {key}")), 1);
}

#[test]
fn news_of_any_kind_and_of_cancellations_are_always_told() {
    let mut db = Db::new();
    let mut listener = listener(&db);
    assert!(tell(&mut db, &[]) && tell(&mut db, &["a"; 17]));
    let cancelled = Notify::new(db.schema.as_str(), &["a"], Duration::ZERO, &[7]);
    assert!(told(db.ask(&Statement::Notify(cancelled))));
    let (channel, text) = (db.schema.as_str().to_owned(), "by hand".to_owned());
    assert!(matches!(db.inquire(Inquiry::Announce { channel, text }), Finding::Announced));
    let all = heard(&mut db, &mut listener);
    assert_eq!((all.len(), &*all[0], &*all[2], &*all[3]), (4, "v1;*;0", "v1;a;0;cancel=7", "by hand"));
}

#[test]
fn an_interest_ends_with_its_session_and_no_sooner() {
    let mut db = Db::new();
    let mut listener = listener(&db);
    let (first, mut second) = (interested(&db, &["a"]), interested(&db, &["a"]));
    second.batch_execute("BEGIN; SELECT 1; ROLLBACK").unwrap();
    drop(first);
    assert!(tell(&mut db, &["a"]));
    let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    db.rows(&format!("SELECT pg_terminate_backend({pid})"));
    let (end, mut told) = (Instant::now() + PATIENCE, 1);
    while tell(&mut db, &["a"]) {
        told += 1;
        assert!(Instant::now() < end, "the session has ended");
    }
    assert!(!tell(&mut db, &["a"]));
    assert_eq!(heard(&mut db, &mut listener).len(), told);
}

/// As a worker is that puts a job back.
#[test]
fn nobody_is_told_of_what_only_the_teller_is_interested_in() {
    let mut db = Db::new();
    let mut worker = interested(&db, &["a"]);
    let (news, texts) = (news(&db, &["a"]), db.texts.clone());
    assert!(!told(ask(&mut worker, &texts, &news)));
    let _other = interested(&db, &["a"]);
    assert!(told(ask(&mut worker, &texts, &news)));
    assert!(tell(&mut db, &["a"]), "its own interest is still there");
}

#[test]
fn an_interest_of_another_schema_is_none_here() {
    let (mut db, other) = (Db::new(), Db::without_schema());
    let _worker = interested(&other, &["a"]);
    assert!(!tell(&mut db, &["a"]));
}

/// Whoever tries the locks may be stopped before it has committed, as behind a pooler. A worker does not wait for that.
#[test]
fn an_interest_that_is_being_tried_waits_a_second_at_most_and_can_be_said_again() {
    let mut db = Db::new();
    let (news, sql) = (news(&db, &["b"]), db.texts.sql(Text::Notify).to_owned());
    let mut producer = session();
    let mut open = producer.transaction().unwrap();
    let commands = news.commands();
    open.query_typed(&sql, &typed(&commands[0].params)).unwrap();
    assert!(tell(&mut db, &["b"]), "two who try at once tell for nothing");
    let mut worker = session();
    let keys = interest::of_worker(db.schema.as_str(), &["a", "b"]);
    let error = try_ask(&mut worker, &db.texts, &Statement::Interest(keys.clone())).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55P03");
    assert_eq!(worker.query_one("SHOW lock_timeout", &[]).unwrap().get::<_, String>(0), "5s");
    open.commit().unwrap();
    assert!(!tell(&mut db, &["b"]), "nobody is interested yet");
    ask(&mut worker, &db.texts, &Statement::Interest(keys));
    assert!(tell(&mut db, &["a"]) && tell(&mut db, &["b"]));
}
