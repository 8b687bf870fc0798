//! What is due, and when there will be something to do.

use super::*;

fn promote(db: &mut Db, look_back: f64, most: i32) -> (u64, bool, Option<f64>) {
    match db.ask(&Statement::Promote(Promote { kinds: vec!["a", "b"], look_back, most })) {
        Reply::Promoted { promoted, more_due, next_due } => (promoted, more_due, next_due),
        other => panic!("{other:?}"),
    }
}

fn survey(db: &mut Db, look_back: f64) -> SurveyReply {
    survey_to(db, look_back, 1_000.0)
}

fn survey_to(db: &mut Db, look_back: f64, horizon: f64) -> SurveyReply {
    survey_but(db, look_back, horizon, &[])
}

fn survey_but(db: &mut Db, look_back: f64, horizon: f64, skip: &[i64]) -> SurveyReply {
    let survey = Survey { look_back, horizon, skip: skip.to_vec(), ..survey_of(&["a", "b"], ME) };
    match db.ask(&Statement::Survey(survey)) {
        Reply::Survey(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// Scheduled jobs that have come due some seconds ago.
fn due(db: &mut Db, count: usize, ago: u32) -> Vec<i64> {
    let ids = db.enqueue(vec![NewJob { delay: 1_000.0, ..job("a") }; count]);
    db.run(&format!("UPDATE {{schema}}.live SET visible_at = now() - interval '{ago} s' WHERE id >= {}", ids[0]));
    ids
}

fn about(seconds: f64) -> impl Fn(f64) -> bool {
    move |got| got <= seconds && got > seconds - 20.0
}

#[test]
fn due_jobs_become_ready_and_the_next_due_time_is_told() {
    let mut db = Db::new();
    assert_eq!(promote(&mut db, ALWAYS, 10), (0, false, None));
    let ids_due = due(&mut db, 3, 5);
    db.enqueue(vec![NewJob { delay: 300.0, ..job("b") }, NewJob { delay: 100.0, ..job("foreign") }]);
    let (promoted, more_due, next_due) = promote(&mut db, ALWAYS, 10);
    assert_eq!((promoted, more_due), (3, false));
    assert!(next_due.is_some_and(about(300.0)), "{next_due:?}");
    assert_eq!(ids(&db.claim(claim(ME))), ids_due);
}

#[test]
fn what_is_left_due_is_told_at_the_limit_and_when_locked() {
    let mut db = Db::new();
    let ids = due(&mut db, 3, 5);
    assert_eq!(promote(&mut db, ALWAYS, 2), (2, true, None));
    let mut second = session();
    let mut open = second.transaction().unwrap();
    open.batch_execute(&db.render(&format!("SELECT 1 FROM {{schema}}.live WHERE id = {} FOR UPDATE", ids[2]))).unwrap();
    assert_eq!(promote(&mut db, ALWAYS, 2), (0, true, None));
    open.rollback().unwrap();
    assert_eq!(promote(&mut db, ALWAYS, 2), (1, false, None));
}

#[test]
fn a_bounded_promotion_leaves_what_came_due_before_its_look_back() {
    let mut db = Db::new();
    due(&mut db, 1, 50);
    assert_eq!(promote(&mut db, 10.0, 10), (0, false, None));
    assert!(!survey(&mut db, 10.0).due);
    assert!(survey(&mut db, ALWAYS).due);
    assert_eq!(promote(&mut db, 100.0, 10), (1, false, None));
}

#[test]
fn a_survey_of_an_empty_queue_finds_nothing() {
    let expected = SurveyReply { ready: false, due: false, stale: false, next_due: None, next_expiry: None };
    let mut db = Db::new();
    assert_eq!(survey(&mut db, ALWAYS), expected);
    db.enqueue_one("foreign");
    assert_eq!(survey(&mut db, ALWAYS), expected);
}

#[test]
fn a_survey_tells_what_is_there_and_when_more_will_be() {
    let mut db = Db::new();
    db.claimed_one(ME);
    assert_eq!(survey(&mut db, ALWAYS).next_expiry, None, "our own leases are not waited for");
    db.claimed_one(OTHER);
    db.enqueue(vec![NewJob { delay: 200.0, ..job("b") }]);
    let seen = survey(&mut db, ALWAYS);
    assert!(!seen.ready && !seen.due && !seen.stale, "{seen:?}");
    assert!(seen.next_due.is_some_and(about(200.0)) && seen.next_expiry.is_some_and(about(60.0)), "{seen:?}");
    assert_eq!(survey_to(&mut db, ALWAYS, 30.0).next_expiry, None, "the next survey comes before");
    db.expire();
    db.enqueue_one("b");
    due(&mut db, 1, 5);
    let seen = survey(&mut db, ALWAYS);
    assert!(seen.ready && seen.due && seen.stale && seen.next_expiry.is_none(), "{seen:?}");
    assert!(!survey(&mut db, 1.0).stale);
}

#[test]
fn a_job_parked_for_ever_disturbs_nobody() {
    let mut db = Db::new();
    db.enqueue(vec![NewJob { delay: 10.0, ..job("a") }]);
    db.run("UPDATE {schema}.live SET visible_at = 'infinity'");
    assert_eq!(promote(&mut db, ALWAYS, 10), (0, false, None));
    assert_eq!(survey(&mut db, ALWAYS).next_due, None);
    db.enqueue(vec![NewJob { delay: 100.0, ..job("a") }]);
    assert!(survey(&mut db, ALWAYS).next_due.is_some_and(about(100.0)));
}

#[test]
fn a_survey_does_not_call_ready_what_its_worker_may_not_take() {
    let mut db = Db::new();
    let id = db.enqueue_one("a");
    assert!(!survey_but(&mut db, ALWAYS, 100.0, &[id]).ready, "or the worker would ask for it again and again");
    assert!(survey(&mut db, ALWAYS).ready);
    db.enqueue_one("b");
    assert!(survey_but(&mut db, ALWAYS, 100.0, &[id]).ready);
}
