//! Jobs with dedup keys, in simulated time.

use std::sync::Arc;

use super::*;
use crate::statement::{Candidate, Decision, KeyedAnswer, KeyedJob, Stance};
use crate::{Effect, Enqueued, JobId};

fn keyed(key: &str, decision: Option<Decision>) -> Request {
    let stance = decision.map(|decision| Stance { decision, expected: "v".into() });
    let job = Arc::new(NewJob { dedup_key: Some(key.into()), ..job("a", 0.0) });
    let keyed = KeyedJob { job, stance, skip: Vec::new() };
    Request::Keyed(KeyedCall { keyed: Arc::new(keyed), until: None })
}

fn stored(id: i64, wakes: bool) -> KeyedAnswer {
    KeyedAnswer::Stored { id, effect: Effect::Inserted, due_in: 0.0, wakes }
}

fn changed() -> KeyedAnswer {
    KeyedAnswer::Changed(Some(Candidate { id: 1, version: "v".into(), found: Err("nobody looks".into()) }))
}

impl Desk {
    pub(super) fn offer(&mut self, id: CallId, key: &str) {
        self.tell(Input::Call(id, keyed(key, None)));
    }

    fn decide(&mut self, id: CallId, key: &str) {
        self.tell(Input::Call(id, keyed(key, Some(Decision::Keep))));
    }

    /// The keys of the statement in flight.
    fn keys(&self) -> Vec<String> {
        match self.sent() {
            Statement::EnqueueKeyed(it) => it.rows.iter().filter_map(|row| row.job.dedup_key.clone()).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    fn notified(&mut self) {
        assert!(matches!(self.sent(), Statement::Notify(_)));
        self.reply(Reply::Done);
    }
}

#[test]
fn a_first_enqueue_of_a_key_is_one_statement_and_the_notification() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    assert_eq!(desk.keys(), ["k"]);
    desk.reply(Reply::Keyed(vec![stored(7, true)]));
    assert!(desk.answers.is_empty(), "workers are told first");
    desk.notified();
    let round = Round::Stored(Enqueued { id: JobId(7), effect: Effect::Inserted });
    assert_eq!(*desk.answers[&1].as_ref().unwrap(), Response::Keyed(round));
}

#[test]
fn what_wakes_nobody_is_answered_at_once() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![stored(7, false)]));
    assert!(desk.answers[&1].is_ok() && desk.is_idle());
}

#[test]
fn keys_that_come_together_share_a_statement_and_one_key_is_in_it_once() {
    let mut desk = Desk::ready();
    desk.enqueue(9, 0.0);
    for (id, key) in [(1, "k"), (2, "l"), (3, "k"), (4, "m")] {
        desk.offer(id, key);
    }
    desk.store();
    desk.notified();
    assert_eq!(desk.keys(), ["k", "l", "m"]);
    desk.reply(Reply::Keyed(vec![stored(1, false), stored(2, false), stored(3, false)]));
    assert_eq!(desk.keys(), ["k"]);
}

#[test]
fn a_statement_takes_no_more_locks_than_the_server_can_spare() {
    let mut desk = Desk::ready();
    desk.enqueue(0, 0.0);
    (1..=150).for_each(|id| desk.offer(id, &id.to_string()));
    desk.store();
    desk.notified();
    assert_eq!(desk.keys().len(), 100);
}

#[test]
fn others_with_the_key_wait_while_one_of_them_decides_but_not_for_long() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![changed()]));
    assert!(matches!(desk.answers[&1], Ok(Response::Keyed(Round::Changed { .. }))));
    desk.offer(2, "k");
    desk.offer(3, "l");
    assert_eq!(desk.keys(), ["l"], "another key is another matter");
    desk.reply(Reply::Keyed(vec![stored(3, false)]));
    assert!(desk.is_idle());
    desk.decide(4, "k");
    assert_eq!(desk.keys(), ["k", "k"], "who waits sees what it has left");
    desk.reply(Reply::Keyed(vec![stored(1, false), changed()]));
    assert!(desk.answers[&4].is_ok() && desk.answers[&2].is_ok());
    desk.offer(5, "k");
    desk.offer(6, "k");
    assert!(desk.is_idle(), "2 decides");
    let turn = desk.producer.deadline().unwrap() - desk.now;
    assert!(turn <= Duration::from_millis(50), "{turn:?}");
    desk.pass(turn);
    assert_eq!(desk.keys(), ["k"], "one of them");
    desk.reply(Reply::Keyed(vec![stored(1, false)]));
    assert!(desk.answers[&5].is_ok() && !desk.answers.contains_key(&6));
}

#[test]
fn who_waits_for_its_turn_in_vain_is_told_of_the_key() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![changed()]));
    desk.offer(2, "k");
    assert!(desk.is_idle());
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.failure(2), ErrorKind::Contended);
}

#[test]
fn a_key_that_another_transaction_has_is_tried_again_and_keeps_nobody_else_waiting() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.offer(2, "l");
    desk.reply(Reply::Keyed(vec![KeyedAnswer::Busy]));
    assert_eq!(desk.keys(), ["l"]);
    desk.reply(Reply::Keyed(vec![stored(2, false)]));
    desk.enqueue(3, 0.0);
    desk.store();
    desk.notified();
    assert!(desk.answers[&2].is_ok() && desk.answers[&3].is_ok() && desk.is_idle());
    let mut tries = 0;
    while !desk.answers.contains_key(&1) {
        let wait = desk.producer.deadline().unwrap() - desk.now;
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(100), "{wait:?}");
        desk.pass(wait);
        if !desk.is_idle() {
            tries += 1;
            desk.reply(Reply::Keyed(vec![KeyedAnswer::Busy]));
        }
    }
    assert_eq!(desk.failure(1), ErrorKind::Contended);
    assert!((100..300).contains(&tries), "{tries} tries in ten seconds");
    assert_eq!(desk.producer.deadline(), None, "nothing is left to wait for");
}

#[test]
fn a_later_round_has_no_more_time_than_the_first_has_left() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![changed()]));
    let Ok(Response::Keyed(Round::Changed { until: Some(until), .. })) = desk.answers[&1] else { panic!() };
    desk.pass(Duration::from_secs(9));
    let Request::Keyed(call) = keyed("k", Some(Decision::Keep)) else { unreachable!() };
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    desk.tell(Input::Call(2, Request::Keyed(KeyedCall { until: Some(until), ..call })));
    desk.pass(Duration::from_millis(999));
    assert!(!desk.answers.contains_key(&2));
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.failure(2), ErrorKind::NotEnqueued);
}

#[test]
fn who_decides_for_longer_than_the_call_may_is_told_so() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![changed()]));
    let Ok(Response::Keyed(Round::Changed { until: Some(until), .. })) = desk.answers[&1] else { panic!() };
    desk.pass(Duration::from_secs(11));
    let Request::Keyed(call) = keyed("k", Some(Decision::Keep)) else { unreachable!() };
    desk.tell(Input::Call(2, Request::Keyed(KeyedCall { until: Some(until), ..call })));
    let error = desk.answers[&2].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert!(error.to_string().contains("`merge` that is slow") && desk.is_idle(), "{error}");
    desk.offer(3, "k");
    assert_eq!(desk.keys(), ["k"], "its turn is over");
}

#[test]
fn one_job_that_is_refused_takes_no_other_with_it() {
    let mut desk = Desk::ready();
    desk.enqueue(0, 0.0);
    ["k", "l", "m"].iter().zip(1..).for_each(|(key, id)| desk.offer(id, key));
    desk.store();
    desk.notified();
    desk.refuse(FaultKind::Statement);
    for id in 1..=3 {
        assert_eq!(desk.keys().len(), 1, "one by one");
        if id == 2 {
            desk.refuse(FaultKind::Statement);
        } else {
            desk.reply(Reply::Keyed(vec![stored(id, false)]));
        }
    }
    assert_eq!(desk.failure(2), ErrorKind::Database);
    assert!(desk.answers[&1].is_ok() && desk.answers[&3].is_ok());
}

#[test]
fn a_lost_connection_leaves_a_keyed_job_in_doubt_only_if_it_was_sent() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.offer(2, "k");
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    assert_eq!(desk.failure(1), ErrorKind::Unknown);
    desk.in_flight = None;
    desk.pass(Duration::from_secs(1));
    desk.tell(Input::Connected(desk.epoch));
    assert_eq!(desk.keys(), ["k"]);
    desk.reply(Reply::Keyed(vec![stored(1, false)]));
    assert!(desk.answers[&2].is_ok());
}

#[test]
fn jobs_with_and_without_a_key_take_turns() {
    let mut desk = Desk::ready();
    desk.enqueue(0, 0.0);
    for id in 1..=3 {
        desk.offer(id, &id.to_string());
        desk.enqueue(10 + id, 0.0);
    }
    desk.store();
    desk.notified();
    assert_eq!(desk.keys().len(), 3);
    desk.offer(4, "k");
    desk.reply(Reply::Keyed((1..=3).map(|id| stored(id, false)).collect()));
    assert_eq!(desk.rows(), 3);
    desk.store();
    desk.notified();
    assert_eq!(desk.keys(), ["k"]);
}

#[test]
fn a_closed_queue_first_answers_who_waits_for_a_key() {
    let mut desk = Desk::ready();
    desk.offer(1, "k");
    desk.reply(Reply::Keyed(vec![KeyedAnswer::Busy]));
    desk.tell(Input::Closed);
    assert!(!desk.stopped);
    desk.pass(Duration::from_millis(2));
    desk.reply(Reply::Keyed(vec![stored(1, false)]));
    assert!(desk.stopped && desk.answers[&1].is_ok());
}

#[test]
fn jobs_with_keys_count_among_what_waits() {
    let mut desk = Desk::ready();
    desk.producer.rules.max_waiting = 1_000;
    (1..=4).for_each(|id| desk.offer(id, &id.to_string()));
    assert_eq!(desk.failure(4), ErrorKind::Overloaded, "one is on its way, two wait");
    desk.reply(Reply::Keyed(vec![stored(1, false)]));
    desk.offer(5, "5");
    assert!(!desk.answers.contains_key(&5));
}
