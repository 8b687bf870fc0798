use async_channel::Sender;
use serde::{Deserialize, Serialize};

use super::super::task::Fate;
use super::*;
use crate::context::Home;
use crate::engine::Start;
use crate::job::{ClaimedJob, RunId};
use crate::report::Verdict;
use crate::{Outcome, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct Noop;

impl Task for Noop {
    const KIND: &'static str = "noop";
    type Carry = u64;
}

impl AsyncHandler<String> for Noop {
    async fn handle(&self, context: &mut crate::Context<u64>, state: &String) -> Result<Outcome, TaskError> {
        futures_lite::future::yield_now().await;
        *context.carry_mut() += 1;
        Ok(Outcome::completed_with(state.as_str()))
    }
}

fn database() -> Database {
    Database::new("host=/nowhere user=nobody").unwrap()
}

fn worker() -> Worker<String> {
    Worker::builder("done".to_owned()).database(database()).register::<Noop>().build().unwrap()
}

#[test]
fn the_future_of_a_worker_can_be_spawned_anywhere() {
    fn spawnable<F: Future + Send + 'static>(future: F) -> F {
        future
    }
    drop(spawnable(worker().run(CancellationToken::new())));
}

#[test]
fn a_spawner_is_any_closure() {
    let _ = Worker::builder(()).spawner(|run| {
        tokio::spawn(run);
    });
    let _ = Worker::builder(()).spawner(|run| smol::spawn(run).detach());
}

#[test]
fn a_worker_needs_a_kind() {
    let error = Worker::builder(()).database(database()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoKinds);
}

#[test]
fn a_kind_is_registered_once() {
    let builder = Worker::builder(String::new()).database(database());
    let error = builder.register::<Noop>().register_capped::<Noop>(2).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateKind);
}

#[test]
fn a_worker_without_a_server_stops_when_it_is_told_to() {
    let shutdown = CancellationToken::new();
    let run = worker().run(shutdown.clone());
    let stop = async {
        async_io::Timer::after(std::time::Duration::from_millis(50)).await;
        shutdown.cancel();
    };
    let (report, ()) = futures_lite::future::block_on(futures_lite::future::zip(run, stop));
    assert_eq!(report.unwrap(), ShutdownReport::default());
}

/// A stage without a thread behind it.
fn stage(spawner: Option<Box<dyn Spawn>>) -> (Stage<String>, Sender<Order>, Receiver<Input>) {
    let (inputs, inbox) = async_channel::unbounded();
    let (outbox, orders) = async_channel::unbounded();
    let crew = Crew { spawner: Contained(spawner), ..worker().crew };
    let channels = Channels { inbox: Inbox::new(inputs, Home::nowhere()), orders };
    (Stage::new(crew, channels, &CancellationToken::new()), outbox, inbox)
}

fn ticket(stage: &Stage<String>, job: i64) -> Order {
    let id = RunId { job, run: 1 };
    let json = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    let at = std::time::SystemTime::UNIX_EPOCH;
    let job = ClaimedJob {
        id,
        kind: "noop".to_owned(),
        priority: crate::Priority::Normal,
        created_at: at,
        visible_at: at,
        claimed_at: at,
        trace: None,
        failure_count: 0,
        payload: json("null"),
        carry: None,
    };
    let fate = Arc::<Fate>::default();
    let ties = stage.inbox.ties(id, CancellationToken::new(), &fate);
    let start = Start { id, kind: 0, job, report_start: false };
    Order::Start(vec![Ticket { start: Box::new(start), ties, fate }])
}

fn poll(stage: &mut Stage<String>) -> Poll<Result<ShutdownReport, Error>> {
    stage.poll(&mut Context::from_waker(std::task::Waker::noop()))
}

fn is_discarded(input: Result<Input, async_channel::TryRecvError>, job: i64) -> bool {
    matches!(input, Ok(Input::Finished(id, report)) if id.job == job && report.verdict == Verdict::Discarded)
}

#[test]
fn a_run_without_a_spawner_happens_inside_the_future() {
    let (mut stage, orders, inbox) = stage(None);
    orders.try_send(ticket(&stage, 7)).unwrap();
    while inbox.is_empty() {
        assert!(poll(&mut stage).is_pending());
    }
    let Ok(Input::Finished(_, report)) = inbox.try_recv() else { panic!("no report") };
    assert_eq!(report.verdict, Verdict::Completed { note: Some("done".to_owned()) });
}

#[test]
fn a_future_that_is_dropped_says_so_before_its_runs_do() {
    let (mut stage, orders, inbox) = stage(None);
    orders.try_send(ticket(&stage, 7)).unwrap();
    assert!(poll(&mut stage).is_pending());
    orders.try_send(ticket(&stage, 8)).unwrap();
    drop(stage);
    assert!(matches!(inbox.try_recv(), Ok(Input::Abandoned)));
    assert!(is_discarded(inbox.try_recv(), 7));
    assert!(is_discarded(inbox.try_recv(), 8), "also an order that was never taken");
    assert!(orders.is_closed());
}

#[test]
fn a_spawner_that_panics_gives_the_run_back() {
    let (mut stage, orders, inbox) = stage(Some(Box::new(|_: super::super::BoxFuture| panic!("no executor"))));
    orders.try_send(ticket(&stage, 7)).unwrap();
    assert!(poll(&mut stage).is_pending());
    assert!(is_discarded(inbox.try_recv(), 7));
}

#[test]
fn a_thread_that_vanishes_ends_the_future() {
    let (mut stage, orders, _inbox) = stage(None);
    drop(orders);
    let Poll::Ready(Err(error)) = poll(&mut stage) else { panic!("it hangs") };
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn a_shutdown_is_told_at_once_and_by_whoever_cancels() {
    let shutdown = CancellationToken::new();
    let (inputs, inbox) = async_channel::unbounded();
    let (_outbox, orders) = async_channel::unbounded();
    let channels = Channels { inbox: Inbox::new(inputs, Home::nowhere()), orders };
    let stage = Stage::new(worker().crew, channels, &shutdown);
    shutdown.cancel();
    assert!(matches!(inbox.try_recv(), Ok(Input::Shutdown)));
    drop(stage);
}
