//! The conversation without a server.

use serde::{Deserialize, Serialize};

use super::*;
use crate::statement::{Candidate, Decision, Found, NewId};
use crate::{DedupKey, Effect, Merge, Pending, Priority};

/// The key is the word before the colon; "x" merges badly.
#[derive(Serialize, Deserialize)]
struct Word(String);

impl Task for Word {
    const KIND: &'static str = "word";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        Some(self.0.split_once(':')?.0.into())
    }

    fn merge(&self, _pending: &Pending<Self>) -> Merge<Self> {
        assert!(!self.0.ends_with('x'), "no way");
        Merge::Replace
    }
}

fn visit(words: &[&str]) -> Visit<'static, Word, std::vec::IntoIter<Word>> {
    let words: Vec<Word> = words.iter().map(|word| Word((*word).to_owned())).collect();
    Visit::new(words, 1_000, Some("venturi".to_owned()))
}

fn ids(count: i64) -> Reply {
    Reply::Enqueued((0..count).map(|id| NewId { id, due_in: None }).collect())
}

fn stored(id: i64) -> KeyedAnswer {
    KeyedAnswer::Stored { id, effect: Effect::Inserted, due_in: 0.0, wakes: true }
}

fn changed() -> KeyedAnswer {
    let at = std::time::SystemTime::UNIX_EPOCH;
    let found = Found {
        payload: "\"k:old\"".to_owned(),
        carry: None,
        priority: Priority::Normal,
        created_at: at,
        visible_at: at,
        run_count: 0,
        failure_count: 0,
    };
    KeyedAnswer::Changed(Some(Candidate { id: 7, version: "v".into(), found: Ok(found) }))
}

fn keys(inside: Option<Inside>) -> Vec<String> {
    let Some(Inside::EnqueueKeyed(EnqueueKeyed { rows, wait: true, notify: true })) = inside else {
        panic!("{inside:?}")
    };
    rows.iter().map(|row| row.job.dedup_key.clone().unwrap()).collect()
}

#[test]
fn a_job_without_a_key_is_one_statement() {
    let mut visit = visit(&["plain"]);
    assert!(!visit.has_key());
    let asked = visit.next();
    let Some(Inside::Enqueue(Enqueue { channel: Some(channel), .. })) = &asked else { panic!("{asked:?}") };
    assert_eq!(channel, "venturi");
    visit.answered(Ok(ids(1)));
    assert!(visit.next().is_none() && !visit.has_failed());
    assert_eq!(visit.finish_one().unwrap().id, JobId(0));
}

#[test]
fn waiting_for_a_key_is_limited_unless_it_is_so_already() {
    for was_unlimited in [true, false] {
        let mut visit = visit(&["k:1"]);
        assert!(visit.has_key());
        assert!(matches!(visit.next(), Some(Inside::LockTimeout { from: NO_LOCK_TIMEOUT, to: LOCK_TIMEOUT })));
        visit.answered(Ok(Reply::Changed(was_unlimited)));
        assert_eq!(keys(visit.next()), ["k"]);
        visit.answered(Ok(Reply::Keyed(vec![stored(5)])));
        let back = visit.next();
        assert_eq!(
            matches!(back, Some(Inside::LockTimeout { from: LOCK_TIMEOUT, to: NO_LOCK_TIMEOUT })),
            was_unlimited
        );
        if was_unlimited {
            visit.answered(Ok(Reply::Changed(true)));
        }
        assert!(visit.next().is_none());
        assert_eq!(visit.finish().unwrap()[0].id, JobId(5));
    }
}

#[test]
fn keys_are_taken_in_their_order_and_the_results_are_in_the_order_of_the_tasks() {
    let words: Vec<String> = (0..150).rev().map(|nth| format!("{nth:03}:1")).collect();
    let mut visit = visit(&words.iter().map(String::as_str).chain(["plain"]).collect::<Vec<_>>());
    assert!(matches!(visit.next(), Some(Inside::Enqueue(_))));
    visit.answered(Ok(ids(1)));
    visit.next();
    visit.answered(Ok(Reply::Changed(false)));
    let mut taken = Vec::new();
    for most in [100, 50] {
        let keys = keys(visit.next());
        assert_eq!(keys.len(), most);
        let answers = keys.iter().map(|key| stored(1_000 + key.parse::<i64>().unwrap()));
        visit.answered(Ok(Reply::Keyed(answers.collect())));
        taken.extend(keys);
    }
    assert!(taken.is_sorted(), "{taken:?}");
    assert!(visit.next().is_none());
    let stored: Vec<i64> = visit.finish().unwrap().iter().map(|stored| stored.id.get()).collect();
    assert_eq!(stored, (1_000..1_150).rev().chain([0]).collect::<Vec<_>>());
}

#[test]
fn a_task_that_meets_a_pending_job_decides_and_asks_again() {
    let mut visit = visit(&["k:new"]);
    visit.next();
    visit.answered(Ok(Reply::Changed(false)));
    visit.next();
    visit.answered(Ok(Reply::Keyed(vec![changed()])));
    let asked = visit.next();
    let Some(Inside::EnqueueKeyed(EnqueueKeyed { rows, .. })) = &asked else { panic!("{asked:?}") };
    let stance = rows[0].stance.as_ref().unwrap();
    assert!(matches!(stance.decision, Decision::Replace) && stance.expected == "v");
}

#[test]
fn a_merge_that_panics_ends_it_and_so_does_a_refusal() {
    let mut panics = visit(&["k:x"]);
    panics.next();
    panics.answered(Ok(Reply::Changed(true)));
    panics.next();
    panics.answered(Ok(Reply::Keyed(vec![changed()])));
    assert!(panics.next().is_none() && panics.has_failed(), "nothing is to be set back, for all is taken back");
    assert_eq!(panics.finish_one().unwrap_err().kind(), ErrorKind::Merge);

    let mut refused = visit(&["one", "k:two"]);
    refused.next();
    refused.answered(Err(Fault::link("closed")));
    assert!(refused.next().is_none() && refused.has_failed());
    let error = refused.finish().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unknown, false));
}

#[test]
fn a_reply_that_was_not_asked_for_is_an_error() {
    let mut visit = visit(&["one"]);
    visit.next();
    visit.answered(Ok(Reply::Done));
    assert!(visit.has_failed());
}
