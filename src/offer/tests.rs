//! The conversation against a queue of one key, without a server.

mod story;

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::*;
use crate::{DedupKey, Priority, Submit};

/// Merges as its last letter says.
#[derive(Debug, Serialize, Deserialize)]
struct Letter(String);

impl Task for Letter {
    const KIND: &'static str = "letter";
    type Carry = u32;

    fn priority(&self) -> Priority {
        if self.0.contains('!') { Priority::High } else { Priority::Low }
    }

    fn dedup_key(&self) -> Option<DedupKey> {
        let key = self.0.split_once(':')?.0;
        Some(key.into())
    }

    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        match self.0.chars().last() {
            Some('k') => Merge::Keep,
            Some('i') => Merge::Independent,
            Some('w') => Merge::With { task: Self(format!("{}+{}", pending.task.0, self.0)), carry: None },
            Some('c') => Merge::With { task: Self(pending.task.0.clone()), carry: Some(pending.carry + 1) },
            Some('l') => Merge::with(Self("x".repeat(2_000_000))),
            Some('p') => panic!("no idea"),
            _ => Merge::Replace,
        }
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        assert!(!self.0.ends_with("drop"), "dropping a letter");
    }
}

fn letter(text: &str) -> Letter {
    Letter(text.to_owned())
}

fn offers(texts: &[&str]) -> Offers<'static, Letter> {
    of(texts.iter().map(|text| letter(text).into()))
}

fn of(tasks: impl IntoIterator<Item = Submit<'static, Letter>>) -> Offers<'static, Letter> {
    Offers::new(tasks.into_iter().map(|task| task.into_job(MB).unwrap()).collect(), MB)
}

const MB: usize = 1_000_000;

fn candidate(payload: &str, carry: Option<&str>) -> Round {
    let found = Found {
        payload: payload.to_owned(),
        carry: carry.map(str::to_owned),
        priority: Priority::Normal,
        created_at: SystemTime::UNIX_EPOCH,
        visible_at: SystemTime::UNIX_EPOCH,
        run_count: 0,
        failure_count: 0,
    };
    changed(Some(Candidate { id: 7, version: "v7".into(), found: Ok(found) }))
}

fn changed(candidate: Option<Candidate>) -> Round {
    Round::Changed { candidate, until: Some(until()) }
}

#[expect(clippy::disallowed_methods, reason = "the simulated clock has to start somewhere")]
fn until() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}

fn stored(id: i64, effect: Effect) -> Round {
    Round::Stored(Enqueued { id: JobId(id), effect })
}

impl Offers<'_, Letter> {
    fn keyed(&mut self) -> Vec<KeyedCall> {
        let keyed = |request| match request {
            Request::Keyed(call) => call,
            other => panic!("{other:?}"),
        };
        self.ask().into_iter().map(keyed).collect()
    }

    fn told(&mut self, rounds: Vec<Round>) {
        self.answered(rounds.into_iter().map(|round| Ok(Response::Keyed(round))));
    }

    /// What is asked after this candidate was met.
    fn after(mut self, round: Round) -> Result<KeyedCall, Error> {
        assert!(self.keyed().pop().unwrap().keyed.stance.is_none(), "nothing is known at first");
        self.told(vec![round]);
        match self.take_failure() {
            None => Ok(self.keyed().pop().unwrap()),
            Some(error) => Err(error),
        }
    }

    fn ids(&self) -> Vec<i64> {
        assert!(self.is_over());
        self.stored().0.iter().map(|it| it.id.get()).collect()
    }
}

fn decided(text: &str, round: Round) -> (String, String, Priority) {
    let call = offers(&[text]).after(round).unwrap();
    let stance = call.keyed.stance.as_ref().unwrap();
    assert_eq!(stance.expected, "v7");
    (format!("{:?}", stance.decision), call.keyed.job.payload.get().to_owned(), call.keyed.job.priority)
}

#[test]
fn a_task_that_meets_nobody_is_asked_for_once() {
    let mut offers = offers(&["a:1"]);
    let [call] = offers.keyed().try_into().unwrap();
    assert_eq!(call.keyed.job.dedup_key.as_deref(), Some("a"));
    offers.told(vec![stored(3, Effect::Inserted)]);
    assert_eq!(offers.ids(), [3]);
}

#[test]
fn each_way_to_merge_becomes_a_decision_about_what_was_seen() {
    let met = || candidate("\"a:0\"", Some("5"));
    assert_eq!(decided("a:k", met()), ("Keep".into(), "\"a:k\"".into(), Priority::Low));
    assert_eq!(decided("a:r", met()), ("Replace".into(), "\"a:r\"".into(), Priority::Low));
    assert_eq!(decided("a:i", met()), ("Independent".into(), "\"a:i\"".into(), Priority::Low));
    assert_eq!(decided("a:w", met()), ("With(None)".into(), "\"a:0+a:w\"".into(), Priority::Low));
    let (decision, payload, _) = decided("a:c", met());
    assert!(decision.contains("RawValue(6)") && payload == "\"a:0\"", "{decision}");
    assert!(decided("a:c", candidate("\"a:0\"", None)).0.contains("RawValue(1)"), "from the default carry");
}

#[test]
fn the_merged_task_has_the_more_urgent_of_both_priorities() {
    assert_eq!(decided("a:w", candidate("\"a:!\"", None)).2, Priority::High);
    let urgent = Submit::from(letter("a:w")).priority(Priority::High);
    let call = of([urgent]).after(candidate("\"a:0\"", None)).unwrap();
    assert_eq!(call.keyed.job.priority, Priority::High);
}

#[test]
fn a_candidate_that_is_gone_leaves_the_tasks_own_payload() {
    let mut offers = offers(&["a:w"]);
    offers.keyed();
    offers.told(vec![candidate("\"a:0\"", None)]);
    assert!(offers.keyed()[0].keyed.stance.is_some());
    offers.told(vec![changed(None)]);
    let [call] = offers.keyed().try_into().unwrap();
    assert!(call.keyed.stance.is_none());
    assert_eq!(call.keyed.job.payload.get(), "\"a:w\"");
}

#[test]
fn a_panic_in_merge_is_the_callers_error_and_stores_nothing() {
    let error = offers(&["a:p"]).after(candidate("\"a:0\"", None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Merge);
    assert!(error.to_string().contains("no idea"), "{error}");
}

#[test]
fn a_merged_task_that_is_too_large_is_refused() {
    let error = offers(&["a:l"]).after(candidate("\"a:0\"", None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
}

#[test]
fn a_candidate_that_cannot_be_read_is_passed_over() {
    let malformed = || changed(Some(Candidate { id: 7, version: "v7".into(), found: Err("no payload".into()) }));
    for unreadable in [candidate("7", None), candidate("\"a:0\"", Some("\"many\"")), malformed()] {
        let call = offers(&["a:r"]).after(unreadable).unwrap();
        assert!(call.keyed.stance.is_none());
        assert_eq!(call.keyed.skip, [7]);
    }
}

#[test]
fn after_many_that_cannot_be_read_the_task_goes_beside_them() {
    let mut offers = offers(&["a:r"]);
    for met in 0.. {
        let [call] = offers.keyed().try_into().unwrap();
        if let Some(stance) = &call.keyed.stance {
            assert_eq!((stance.expected.as_str(), met), ("*", MAX_SKIPPED + 1));
            assert!(matches!(stance.decision, Decision::Independent));
            return;
        }
        offers.told(vec![candidate("7", None)]);
    }
}

#[test]
fn a_job_that_changes_all_the_time_is_given_up() {
    let mut offers = offers(&["a:r"]);
    for _ in 0..MAX_ROUNDS {
        assert_eq!(offers.keyed().len(), 1);
        offers.told(vec![candidate("\"a:0\"", None)]);
    }
    assert!(offers.is_over());
    let error = offers.take_failure().unwrap();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Contended, true));
    assert!(error.to_string().contains("\"a\""), "{error}");
}

#[test]
fn tasks_of_one_call_with_the_same_key_go_one_after_another() {
    let mut offers = offers(&["plain", "a:1", "b:1", "a:2"]);
    let asked = offers.ask();
    let [Request::Enqueue(batch), Request::Keyed(_), Request::Keyed(_)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(batch.len(), 1);
    let inserted = |id| Ok(Response::Keyed(stored(id, Effect::Inserted)));
    offers.answered([Ok(Response::Enqueued(vec![1])), inserted(2), inserted(3)]);
    let [call] = offers.keyed().try_into().unwrap();
    assert_eq!(call.keyed.job.payload.get(), "\"a:2\"");
    offers.told(vec![stored(2, Effect::Replaced)]);
    assert_eq!(offers.ids(), [1, 2, 3, 2]);
}

#[test]
fn what_is_stored_before_a_failure_is_told() {
    let fail = |kind| Err(Error::new(kind, "refused"));
    let ok = |id| Ok(Response::Keyed(stored(id, Effect::Inserted)));
    for (answers, wanted) in [
        ([ok(1), fail(ErrorKind::NotEnqueued), ok(3)], (vec![1], 2)),
        ([ok(1), ok(2), fail(ErrorKind::NotEnqueued)], (vec![1, 2], 0)),
        ([ok(1), ok(2), fail(ErrorKind::Unknown)], (vec![1, 2], 1)),
        ([fail(ErrorKind::Unknown), fail(ErrorKind::Unknown), ok(3)], (vec![], 3)),
    ] {
        let mut some = offers(&["a:1", "b:1", "c:1"]);
        some.ask();
        some.answered(answers);
        assert_eq!((some.ids(), some.stored().1), wanted);
        assert!(some.take_failure().is_some());
    }
}

#[test]
fn a_task_that_panics_when_it_is_dropped_has_been_enqueued_all_the_same() {
    let mut offers = offers(&["a:drop"]);
    offers.ask();
    offers.told(vec![stored(1, Effect::Inserted)]);
    assert_eq!(offers.ids(), [1]);
    drop(offers);
}

#[test]
fn a_merge_that_panics_among_tasks_that_panic_when_dropped_is_an_error_all_the_same() {
    let error = offers(&["a:drop p"]).after(candidate("\"a:0 drop\"", None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Merge);
    assert!(error.to_string().contains("no idea"), "{error}");
    let call = offers(&["a:1"]).after(candidate("\"a:0 drop\"", Some("\"no number\""))).unwrap();
    assert_eq!(call.keyed.skip, [7]);
}

#[test]
fn keys_that_make_no_sense_are_refused_before_anything_is_asked() {
    for key in [String::new(), "x".repeat(201), "a\0".into()] {
        let Err(error) = Submit::from(letter("plain")).dedup_key(key).into_job(MB) else { panic!() };
        assert_eq!(error.kind(), ErrorKind::DedupKey);
    }
}

#[test]
fn a_key_can_be_given_with_the_job() {
    let (job, task) = Submit::from(letter("a:1")).dedup_key("b").into_job(MB).unwrap();
    assert_eq!((job.dedup_key.as_deref(), task.is_some()), (Some("b"), true));
}
