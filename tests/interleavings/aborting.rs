//! A run as a future on its executor's thread, beside the engine's thread that aborts it.

use std::future::pending;

use async_channel::Receiver;
use shuttle::future::block_on;
use shuttle::thread::spawn;

use super::*;
use crate::interleavings::in_many_orders;

const ID: RunId = RunId { job: 7, run: 1 };

fn task(run: impl Future<Output = Report> + Send + 'static) -> (JobTask, Arc<Fate>, Receiver<Input>) {
    let (engine, inputs) = async_channel::unbounded();
    let fate = Arc::<Fate>::default();
    let departure = Inbox::new(engine, Home::nowhere()).ties(ID, CancellationToken::new(), &fate).departure;
    (JobTask::new(Box::pin(run), Arc::clone(&fate), None, departure), fate, inputs)
}

/// The one report of the run, or none.
fn verdict(inputs: &Receiver<Input>) -> Option<Verdict> {
    let report = inputs.try_recv().ok();
    assert!(inputs.try_recv().is_err(), "a run is reported once");
    report.map(|input| match input {
        Input::Finished(ID, report) => report.verdict,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_run_that_never_ends_is_aborted_or_taken_back() {
    in_many_orders(|| {
        let (task, fate, inputs) = task(pending());
        let executor = spawn(move || block_on(task));
        let taken_back = fate.abort();
        executor.join().unwrap();
        assert_eq!(verdict(&inputs), (!taken_back).then_some(Verdict::Aborted));
    });
}

#[test]
fn a_run_that_ends_meanwhile_is_reported_by_one_side() {
    in_many_orders(|| {
        let (task, fate, inputs) = task(async {
            shuttle::future::yield_now().await;
            Report::new(Verdict::Completed { note: None })
        });
        let executor = spawn(move || block_on(task));
        let taken_back = fate.abort();
        let again = fate.abort();
        executor.join().unwrap();
        assert!(!again || taken_back, "what has begun cannot be taken back later");
        assert_eq!(verdict(&inputs).is_some(), !taken_back);
    });
}

#[test]
fn a_run_that_is_thrown_away_meanwhile_is_reported_by_one_side() {
    in_many_orders(|| {
        let (task, fate, inputs) = task(pending());
        let executor = spawn(move || drop(task));
        let taken_back = fate.abort();
        executor.join().unwrap();
        assert_eq!(verdict(&inputs).is_some(), !taken_back);
    });
}
