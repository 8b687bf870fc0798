use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Cx, Waker};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::*;
use crate::ask::{Ask, Desk};
use crate::departure::Departure;
use crate::job::RunId;
use crate::{CancellationToken, Context, Outcome, Priority, Task, TaskError};

/// What a handler does, and whose `Drop` panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Plan {
    Complete,
    PanicAtOnce,
    PanicLater,
    Hang,
}

#[derive(Serialize, Deserialize)]
struct Mine {
    plan: Plan,
    task_panics: bool,
    future_panics: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Carry(bool);

impl Task for Mine {
    const KIND: &'static str = "mine";
    type Carry = Carry;
}

/// How often something was dropped.
type Drops = AtomicUsize;

struct Bomb<'a>(bool, &'a Drops);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        assert!(!self.0, "dropping the future");
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(!self.task_panics, "dropping the task");
    }
}

impl Drop for Carry {
    fn drop(&mut self) {
        assert!(!self.0, "dropping the carry");
    }
}

impl AsyncHandler<Arc<Drops>> for Mine {
    fn handle(
        &self,
        context: &mut Context<Carry>,
        drops: &Arc<Drops>,
    ) -> impl Future<Output = Result<Outcome, TaskError>> + Send {
        assert!(self.plan != Plan::PanicAtOnce, "at once");
        async {
            context.carry_mut().0 = self.task_panics;
            let bomb = Bomb(self.future_panics && self.plan == Plan::Hang, drops);
            match self.plan {
                Plan::PanicLater => panic!("later"),
                Plan::Hang => pending().await,
                Plan::Complete | Plan::PanicAtOnce => drop(bomb),
            }
            Ok(Outcome::completed())
        }
    }
}

struct Nobody;

impl Desk for Nobody {
    fn ask(&self, _: RunId, _: Ask) {}
}

fn start(payload: &str, drops: &Arc<Drops>) -> Run {
    let job = ClaimedJob {
        id: RunId { job: 7, run: 1 },
        kind: Mine::KIND.to_owned(),
        priority: Priority::Normal,
        created_at: SystemTime::UNIX_EPOCH,
        visible_at: SystemTime::UNIX_EPOCH,
        claimed_at: SystemTime::UNIX_EPOCH,
        trace: None,
        failure_count: 0,
        payload: RawValue::from_string(payload.to_owned()).unwrap(),
        carry: None,
    };
    let ties = Ties {
        token: CancellationToken::new(),
        desk: Arc::new(Nobody),
        departure: Departure::new(|_| {}),
        home: crate::context::Home::nowhere(),
    };
    run::<Arc<Drops>, Mine>(job, ties, Arc::new(Contained::new(Arc::clone(drops))))
}

fn planned(plan: Plan, task_panics: bool) -> String {
    let mut mine = Mine { plan, task_panics, future_panics: true };
    let text = serde_json::to_string(&mine).unwrap();
    mine.task_panics = false;
    text
}

fn verdict(plan: Plan, task_panics: bool) -> Verdict {
    futures_lite::future::block_on(start(&planned(plan, task_panics), &Arc::default())).verdict
}

fn panicked(text: &str) -> Verdict {
    Verdict::Panicked(format!("panicked: {text}"))
}

#[test]
fn a_run_that_ends_well_reports_what_its_handler_returned() {
    assert_eq!(verdict(Plan::Complete, false), Verdict::Completed { note: None });
}

#[test]
fn a_payload_that_cannot_be_decoded_is_reported() {
    let run = start("[]", &Arc::default());
    assert!(matches!(futures_lite::future::block_on(run).verdict, Verdict::Undecodable(_)));
}

#[test]
fn a_panic_before_and_after_the_future_is_made_is_reported() {
    assert_eq!(verdict(Plan::PanicAtOnce, false), panicked("at once"));
    assert_eq!(verdict(Plan::PanicLater, false), panicked("later"));
}

#[test]
fn of_several_panics_the_first_is_reported() {
    assert_eq!(verdict(Plan::PanicLater, true), panicked("later"));
    assert_eq!(verdict(Plan::Complete, true), panicked("dropping the carry"));
}

#[test]
fn a_run_that_is_dropped_half_way_may_panic_in_every_part() {
    let drops = Arc::<Drops>::default();
    let mut run = start(&planned(Plan::Hang, true), &drops);
    assert!(run.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
    drop(run);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}
