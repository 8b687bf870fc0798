use std::panic::panic_any;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::*;
use crate::ask::{Ask, Desk};
use crate::departure::Departure;
use crate::job::RunId;
use crate::{CancellationToken, Context, Outcome, Priority, Task, TaskError};

/// A task that does what its payload says.
#[derive(Serialize, Deserialize)]
enum Script {
    Complete,
    Pause,
    Fail,
    Panic,
    /// With a payload that is not text.
    PanicWithNumber,
    /// With a payload that panics when it is dropped.
    PanicWithBomb,
    /// The task itself panics when it is dropped.
    DropBomb,
    /// The handler panics, and so does the task when it is dropped.
    PanicAndDropBomb,
    /// The carry panics when it is dropped.
    CarryBomb,
    /// The handler panics, and so does the carry when it is dropped.
    PanicAndCarryBomb,
    /// The carry panics when it is written.
    Unwritable,
}

#[derive(Default, Serialize, Deserialize)]
struct Carry {
    count: u32,
    #[serde(skip)]
    armed: bool,
    #[serde(serialize_with = "refuse_if_set")]
    unwritable: bool,
}

fn refuse_if_set<S: serde::Serializer>(set: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(!set, "the carry cannot be written");
    serializer.serialize_bool(*set)
}

impl Drop for Carry {
    fn drop(&mut self) {
        assert!(!self.armed, "the carry was dropped");
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        assert!(!matches!(self, Self::DropBomb | Self::PanicAndDropBomb), "the task was dropped");
    }
}

impl Task for Script {
    const KIND: &'static str = "script";
    type Carry = Carry;
}

impl BlockingHandler<()> for Script {
    fn handle(&self, context: &mut Context<Carry>, _: &()) -> Result<Outcome, TaskError> {
        let carry = context.carry_mut();
        carry.count += 1;
        match self {
            Self::Complete | Self::DropBomb => Ok(Outcome::completed_with("done")),
            Self::Pause => Ok(Outcome::pause_in(Duration::from_secs(1))),
            Self::Fail => Err("no luck".into()),
            Self::Panic | Self::PanicAndDropBomb => panic!("in the handler"),
            Self::PanicWithNumber => panic_any(7),
            Self::PanicWithBomb => panic_any(Bomb),
            Self::CarryBomb | Self::PanicAndCarryBomb => {
                carry.armed = true;
                assert!(!matches!(self, Self::PanicAndCarryBomb), "in the handler");
                Ok(Outcome::completed())
            }
            Self::Unwritable => {
                carry.unwritable = true;
                Ok(Outcome::pause_in(Duration::from_secs(1)))
            }
        }
    }
}

/// No handler here asks anything.
struct NoDesk;

impl Desk for NoDesk {
    fn ask(&self, _: RunId, _: Ask) {}
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn report_of(payload: &str, carry: Option<&str>) -> Report {
    let job = ClaimedJob {
        id: RunId { job: 1, run: 1 },
        kind: "script".to_owned(),
        priority: Priority::Normal,
        created_at: UNIX_EPOCH,
        visible_at: UNIX_EPOCH,
        claimed_at: UNIX_EPOCH,
        trace: None,
        failure_count: 0,
        payload: json(payload),
        carry: carry.map(json),
    };
    let (token, departure) = (CancellationToken::new(), Departure::new(|_| ()));
    run::<(), Script>(
        &job,
        Ties { token, desk: Arc::new(NoDesk), departure, home: crate::context::Home::nowhere() },
        &(),
    )
}

fn verdict_of(script: &str) -> Verdict {
    report_of(&format!("{script:?}"), None).verdict
}

fn panicked(text: &str) -> Verdict {
    Verdict::Panicked(format!("panicked: {text}"))
}

#[test]
fn what_the_handler_returns_is_reported() {
    assert_eq!(verdict_of("Complete"), Verdict::Completed { note: Some("done".to_owned()) });
    assert_eq!(verdict_of("Fail"), Verdict::Failed { message: "no luck".to_owned(), permanent: false });
    let paused = report_of("\"Pause\"", Some("{\"count\": 4, \"unwritable\": false}"));
    assert_eq!(paused.verdict, Verdict::Paused { resume_in: Duration::from_secs(1), note: None });
    assert_eq!(paused.carry.unwrap().get(), "{\"count\":5,\"unwritable\":false}");
}

#[test]
fn what_cannot_be_decoded_is_reported_and_not_run() {
    assert!(matches!(verdict_of("Sing"), Verdict::Undecodable(text) if text.starts_with("cannot decode the payload")));
    let carry = report_of("\"Panic\"", Some("[]")).verdict;
    assert!(matches!(carry, Verdict::Undecodable(text) if text.starts_with("cannot decode the carry")));
}

#[test]
fn a_panic_of_the_handler_is_reported_whatever_its_payload() {
    assert_eq!(verdict_of("Panic"), panicked("in the handler"));
    assert_eq!(verdict_of("PanicWithNumber"), panicked("a value that is not text"));
    assert_eq!(verdict_of("PanicWithBomb"), panicked("a value that is not text"));
}

#[test]
fn a_panic_while_task_or_carry_is_dropped_is_reported() {
    assert_eq!(verdict_of("DropBomb"), panicked("the task was dropped"));
    assert_eq!(verdict_of("CarryBomb"), panicked("the carry was dropped"));
}

#[test]
fn a_panic_while_the_carry_is_written_is_reported() {
    assert_eq!(verdict_of("Unwritable"), panicked("the carry cannot be written"));
}

#[test]
fn a_panic_while_dropping_after_a_panic_does_not_end_the_process_and_the_first_one_is_told() {
    assert_eq!(verdict_of("PanicAndDropBomb"), panicked("in the handler"));
    assert_eq!(verdict_of("PanicAndCarryBomb"), panicked("in the handler"));
}
