//! Runs on the pool's threads, beside a coordinator that takes them back, cancels them, or goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Instant, UNIX_EPOCH};

use serde_json::value::RawValue;

use super::channel::{Receiver, unbounded};
use super::in_many_orders;
use crate::cancellation::CancelReason;
use crate::context::Home;
use crate::engine::{Input, Start};
use crate::handler::BlockingHandler;
use crate::job::{ClaimedJob, RunId};
use crate::panic_boundary::Contained;
use crate::report::Verdict;
use crate::threads::{Pool, run};
use crate::{CancellationToken, Context, Outcome, Priority, Task, TaskError};

/// The jobs whose handlers started. Nothing is scheduled while it is locked.
type Started = Arc<Mutex<Vec<i64>>>;

#[derive(serde::Serialize, serde::Deserialize)]
struct Short;

impl Task for Short {
    const KIND: &'static str = "short";
    type Carry = ();
}

impl BlockingHandler<Started> for Short {
    fn handle(&self, context: &mut Context<()>, started: &Started) -> Result<Outcome, TaskError> {
        started.lock().unwrap().push(context.job_id().get());
        shuttle::thread::yield_now();
        Ok(Outcome::completed())
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct UntilCancelled;

impl Task for UntilCancelled {
    const KIND: &'static str = "until_cancelled";
    type Carry = ();
}

impl BlockingHandler<Started> for UntilCancelled {
    fn handle(&self, context: &mut Context<()>, started: &Started) -> Result<Outcome, TaskError> {
        started.lock().unwrap().push(context.job_id().get());
        shuttle::future::block_on(context.cancelled());
        Ok(Outcome::completed())
    }
}

struct Rig {
    pool: Pool<Started>,
    started: Started,
    inputs: Receiver<Input>,
}

fn rig(most: usize) -> Rig {
    let (reports, inputs) = unbounded();
    let started = Started::default();
    let runners = vec![Some(run::<Started, Short> as _), Some(run::<Started, UntilCancelled> as _)];
    let state = Contained::new(Arc::clone(&started));
    let tell = move |input| drop(reports.send(input));
    let pool = Pool::new(runners, Arc::new(state), tell, CancellationToken::new(), most, Home::nowhere());
    Rig { pool, started, inputs }
}

fn id(job: i64) -> RunId {
    RunId { job, run: 1 }
}

impl Rig {
    fn start(&mut self, job: i64, kind: usize) {
        self.start_reported(job, kind, false);
    }

    fn start_reported(&mut self, job: i64, kind: usize, report_start: bool) {
        let job = ClaimedJob {
            id: id(job),
            kind: String::new(),
            priority: Priority::Normal,
            created_at: UNIX_EPOCH,
            visible_at: UNIX_EPOCH,
            failure_count: 0,
            payload: RawValue::from_string("null".to_owned()).unwrap(),
            carry: None,
            claimed_at: UNIX_EPOCH,
            trace: None,
        };
        self.pool.start(Start { id: job.id, kind, job, report_start });
    }

    /// So many reports, each of another run, and nothing more once the threads have ended.
    fn end(self, reports: usize) -> (BTreeMap<i64, Verdict>, Vec<i64>) {
        let Self { mut pool, started, inputs } = self;
        let mut verdicts = BTreeMap::new();
        for _ in 0..reports {
            let Ok(Input::Finished(id, report)) = inputs.recv() else { panic!("a report was expected") };
            pool.forget(id);
            assert_eq!(verdicts.insert(id.job, report.verdict), None, "a run is reported once");
        }
        pool.end_by(Instant::now());
        assert!(inputs.recv().is_err(), "nothing is reported once more");
        let started = started.lock().unwrap().clone();
        (verdicts, started)
    }
}

const COMPLETED: Verdict = Verdict::Completed { note: None };

#[test]
fn every_run_is_performed_and_reported_once() {
    in_many_orders(|| {
        let mut rig = rig(2);
        (1..=3).for_each(|job| rig.start(job, 0));
        let (verdicts, mut started) = rig.end(3);
        started.sort_unstable();
        assert_eq!(started, [1, 2, 3]);
        assert!(verdicts.into_values().all(|verdict| verdict == COMPLETED));
    });
}

#[test]
fn a_run_is_performed_or_taken_back_and_never_both() {
    in_many_orders(|| {
        let mut rig = rig(1);
        rig.start(1, 0);
        rig.start(2, 0);
        rig.pool.revoke(id(2));
        rig.pool.revoke(id(1));
        let (verdicts, started) = rig.end(2);
        for (job, verdict) in verdicts {
            let wanted = if started.contains(&job) { COMPLETED } else { Verdict::NotStarted };
            assert_eq!(verdict, wanted, "of job {job}, where {started:?} have started");
        }
    });
}

#[test]
fn a_slot_that_is_free_again_has_a_thread() {
    in_many_orders(|| {
        let mut rig = rig(1);
        rig.start(1, 0);
        let Ok(Input::Finished(first, _)) = rig.inputs.recv() else { panic!() };
        rig.pool.forget(first);
        // The thread that reported may not have come back yet.
        rig.start(2, 0);
        let (verdicts, started) = rig.end(1);
        assert_eq!((verdicts.len(), started), (1, vec![1, 2]));
    });
}

#[test]
fn a_handler_hears_that_it_is_to_wind_down() {
    in_many_orders(|| {
        let mut rig = rig(2);
        rig.start(1, 1);
        rig.start(2, 0);
        rig.pool.cancel(id(1), CancelReason::Requested);
        let (verdicts, _) = rig.end(2);
        assert!(verdicts.into_values().all(|verdict| verdict == COMPLETED));
    });
}

#[test]
fn handlers_wind_down_when_the_coordinator_is_gone() {
    in_many_orders(|| {
        let mut rig = rig(2);
        rig.start(1, 1);
        rig.start(2, 1);
        let Rig { pool, started, inputs } = rig;
        drop(pool);
        let mut reported = 0;
        while let Ok(Input::Finished(..)) = inputs.recv() {
            reported += 1;
        }
        assert_eq!(reported, started.lock().unwrap().len(), "what has started is reported, what has not is dropped");
    });
}

#[test]
fn each_of_several_long_runs_gets_one_of_the_threads_that_sleep() {
    in_many_orders(|| {
        let mut rig = rig(3);
        (1..=3).for_each(|job| rig.start(job, 0));
        for _ in 1..=3 {
            let Ok(Input::Finished(id, _)) = rig.inputs.recv() else { panic!("a report was expected") };
            rig.pool.forget(id);
        }
        (4..=6).for_each(|job| rig.start_reported(job, 1, true));
        for _ in 4..=6 {
            assert!(matches!(rig.inputs.recv(), Ok(Input::Started(_))), "all three run at the same time");
        }
        (4..=6).for_each(|job| rig.pool.cancel(id(job), CancelReason::Shutdown));
        assert_eq!(rig.end(3).0.len(), 3);
    });
}
