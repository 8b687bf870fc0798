use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Wake, Waker};

use async_channel::Receiver;

use super::*;

const ID: RunId = RunId { job: 7, run: 1 };

struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task with what its engine has heard, and its waker.
struct Bench {
    task: Option<JobTask>,
    fate: Arc<Fate>,
    inputs: Receiver<Input>,
    wakes: Arc<Counted>,
}

impl Bench {
    fn new(run: impl Future<Output = Report> + Send + 'static) -> Self {
        let (engine, inputs) = async_channel::unbounded();
        let fate = Arc::<Fate>::default();
        let inbox = Inbox::new(engine, Home::nowhere());
        let departure = inbox.ties(ID, CancellationToken::new(), &fate).departure;
        let task = JobTask::new(Box::pin(run), Arc::clone(&fate), Some((ID, inbox)), departure);
        Self { task: Some(task), fate, inputs, wakes: Arc::new(Counted(AtomicUsize::new(0))) }
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let task = self.task.as_mut().unwrap();
        Pin::new(task).poll(&mut Context::from_waker(&waker))
    }

    fn heard_start(&self) -> bool {
        matches!(self.inputs.try_recv(), Ok(Input::Started(id)) if id == ID)
    }

    /// The one verdict that the engine heard.
    fn verdict(&self) -> Verdict {
        let Ok(Input::Finished(id, report)) = self.inputs.try_recv() else { panic!("no report") };
        assert_eq!(id, ID);
        assert!(self.inputs.try_recv().is_err(), "a run is reported once");
        report.verdict
    }
}

fn done() -> Report {
    Report::new(Verdict::Completed { note: None })
}

/// Says when it is dropped, and whether the engine had heard the report by then.
struct Witness {
    inputs: Receiver<Input>,
    dropped_before: Arc<AtomicBool>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.dropped_before.store(self.inputs.is_empty(), Ordering::SeqCst);
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the bomb went off");
    }
}

#[test]
fn a_run_that_ends_is_reported_after_its_start() {
    let mut bench = Bench::new(async { done() });
    assert!(bench.inputs.is_empty(), "nothing happens before the first poll");
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Completed { note: None });
    drop(bench.task.take());
    assert!(bench.inputs.is_empty());
}

#[test]
fn an_abort_wakes_a_pending_run_and_drops_it_before_the_report() {
    let mut bench = Bench::new(pending());
    let dropped_before = Arc::new(AtomicBool::new(false));
    let witness = Witness { inputs: bench.inputs.clone(), dropped_before: Arc::clone(&dropped_before) };
    bench.task.as_mut().unwrap().run = Some(Box::pin(async move {
        let _witness = witness;
        pending().await
    }));
    assert!(bench.poll().is_pending());
    assert!(bench.heard_start());
    assert!(!bench.fate.abort());
    assert_eq!(bench.wakes.0.load(Ordering::SeqCst), 1);
    assert!(bench.poll().is_ready());
    assert!(dropped_before.load(Ordering::SeqCst));
    assert_eq!(bench.verdict(), Verdict::Aborted);
}

#[test]
fn an_abort_before_the_first_poll_never_starts_the_handler() {
    let started = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&started);
    let mut bench = Bench::new(async move {
        flag.store(true, Ordering::SeqCst);
        done()
    });
    assert!(bench.fate.abort(), "whoever takes it back reports it");
    assert!(bench.poll().is_ready());
    assert!(!started.load(Ordering::SeqCst));
    drop(bench.task.take());
    assert!(bench.inputs.is_empty());
}

#[test]
fn a_task_that_was_taken_back_and_is_never_polled_goes_quietly() {
    let mut bench = Bench::new(pending());
    assert!(bench.fate.abort());
    drop(bench.task.take());
    assert!(bench.inputs.is_empty());
}

#[test]
fn a_run_has_ended_when_its_last_hold_is_gone() {
    let mut bench = Bench::new(async { done() });
    let hold = bench.task.as_ref().unwrap().departure.as_ref().unwrap().hold();
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert!(bench.inputs.is_empty());
    drop(hold);
    assert_eq!(bench.verdict(), Verdict::Completed { note: None });
}

#[test]
fn an_abort_while_the_run_is_being_polled_takes_effect_at_the_next_poll() {
    let mut bench = Bench::new(pending());
    let fate = Arc::clone(&bench.fate);
    bench.task.as_mut().unwrap().run = Some(Box::pin(poll_fn(move |_| {
        assert!(!fate.abort());
        Poll::Pending
    })));
    assert!(bench.poll().is_pending());
    assert_eq!(bench.wakes.0.load(Ordering::SeqCst), 1);
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Aborted);
}

#[test]
fn an_abort_after_the_end_changes_nothing() {
    let mut bench = Bench::new(async { done() });
    assert!(bench.poll().is_ready());
    assert!(!bench.fate.abort());
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Completed { note: None });
    assert_eq!(bench.wakes.0.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_before_the_first_await_is_reported() {
    // As a handler that is an ordinary function and panics before it returns its future.
    fn handle() -> std::future::Ready<Report> {
        panic!("no luck")
    }
    let mut bench = Bench::new(async { handle().await });
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Panicked("panicked: no luck".to_owned()));
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_is_reported() {
    let mut bench = Bench::new(async { panic_any(Bomb) });
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Panicked("panicked: a value that is not text".to_owned()));
}

#[test]
fn a_panic_while_a_finished_run_drops_its_values_counts_as_one_of_the_run() {
    let mut bench = Bench::new(async {
        let _bomb = Bomb;
        done()
    });
    assert!(bench.poll().is_ready());
    assert!(bench.heard_start());
    assert_eq!(bench.verdict(), Verdict::Panicked("panicked: the bomb went off".to_owned()));
}

#[test]
fn a_panic_while_an_aborted_run_is_dropped_is_contained() {
    let mut bench = Bench::new(async {
        let _bomb = Bomb;
        pending().await
    });
    assert!(bench.poll().is_pending());
    assert!(bench.heard_start());
    assert!(!bench.fate.abort());
    assert!(bench.poll().is_ready());
    assert_eq!(bench.verdict(), Verdict::Aborted);
}

#[test]
fn a_task_that_is_thrown_away_reports_itself() {
    let mut unpolled = Bench::new(async { done() });
    drop(unpolled.task.take());
    assert_eq!(unpolled.verdict(), Verdict::Discarded);

    let mut polled = Bench::new(async {
        let _bomb = Bomb;
        pending().await
    });
    assert!(polled.poll().is_pending());
    assert!(polled.heard_start());
    drop(polled.task.take());
    assert_eq!(polled.verdict(), Verdict::Discarded);
}

#[test]
fn a_task_that_is_thrown_away_instead_of_being_aborted_counts_as_aborted() {
    let mut bench = Bench::new(pending());
    assert!(bench.poll().is_pending());
    assert!(bench.heard_start());
    assert!(!bench.fate.abort());
    drop(bench.task.take());
    assert_eq!(bench.verdict(), Verdict::Aborted);
}

#[test]
fn a_task_whose_worker_has_ended_goes_quietly() {
    let mut bench = Bench::new(async { done() });
    bench.inputs.close();
    assert!(bench.poll().is_ready());
}
