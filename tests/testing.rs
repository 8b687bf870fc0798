//! The kit for tests of applications, used as an application would: in both front-ends.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod cluster;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::testing::{Drained, Expected, TestSchema};
use venturi::{
    Backoff, Database, DedupKey, JobFilter, JobId, JobStatus, JournalEvent, Outcome, Submit, Task, TaskError,
};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize)]
struct Invite {
    guest: String,
}

impl Task for Invite {
    const KIND: &'static str = "invite";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        (self.guest == "Grace").then(|| DedupKey::new(self.guest.as_str()))
    }
}

/// What an invitation leads to: it is enqueued by the handler.
#[derive(Debug, Serialize, Deserialize)]
struct Remind {
    guest: String,
}

impl Task for Remind {
    const KIND: &'static str = "remind";
    type Carry = ();
}

fn outcome_of(guest: &str, failures: u32) -> Result<Outcome, TaskError> {
    match guest {
        "Bob" if failures < 3 => Err("the mail server is down".into()),
        _ => Ok(Outcome::completed()),
    }
}

fn invite(guest: &str) -> Invite {
    Invite { guest: guest.to_owned() }
}

fn schema() -> TestSchema {
    let url = cluster::shared_url().expect("a server");
    TestSchema::within(&Database::new(&url).expect("a DSN")).expect("a schema")
}

/// The same for both front-ends.
trait Front {
    fn enqueue(&self, task: Invite, delay: Duration) -> JobId;
    fn remind(&self, guest: &str, delay: Duration);
    fn go(&self, how: How) -> Drained;
}

#[derive(Clone, Copy)]
enum How {
    Drain,
    Next,
    One(JobId),
}

mod threads {
    use venturi::blocking::{Context, Handler, Queue, Worker};

    use super::*;

    pub(super) struct Blocking(pub(super) Database);

    impl Handler<Queue> for Invite {
        fn handle(&self, context: &mut Context<()>, queue: &Queue) -> Result<Outcome, TaskError> {
            queue.enqueue(&Remind { guest: self.guest.clone() })?;
            outcome_of(&self.guest, context.failure_count())
        }
    }

    impl Handler<Queue> for Remind {
        fn handle(&self, _: &mut Context<()>, _: &Queue) -> Result<Outcome, TaskError> {
            Ok(Outcome::completed())
        }
    }

    impl Front for Blocking {
        fn enqueue(&self, task: Invite, delay: Duration) -> JobId {
            let queue = Queue::connect(&self.0).expect("a queue");
            queue.enqueue(Submit::from(&task).delay(delay)).expect("enqueued").id
        }

        fn remind(&self, guest: &str, delay: Duration) {
            let queue = Queue::connect(&self.0).expect("a queue");
            let task = Remind { guest: guest.to_owned() };
            queue.enqueue(Submit::from(&task).delay(delay)).expect("enqueued");
        }

        fn go(&self, how: How) -> Drained {
            let queue = Queue::connect(&self.0).expect("a queue");
            let builder = Worker::builder(queue).database(self.0.clone()).register::<Invite>().register::<Remind>();
            let worker = builder.backoff(Backoff::new(HOUR, HOUR)).jitter(0.0).build().expect("a worker");
            match how {
                How::Drain => worker.drain(),
                How::Next => worker.run_next(),
                How::One(id) => worker.run_one(id),
            }
            .expect("it ends")
        }
    }
}

mod futures {
    use futures_lite::future::block_on;
    use venturi::r#async::{Context, Handler, Queue, Worker};

    use super::*;

    pub(super) struct Async(pub(super) Database);

    impl Handler<Queue> for Invite {
        async fn handle(&self, context: &mut Context<()>, queue: &Queue) -> Result<Outcome, TaskError> {
            queue.enqueue(Remind { guest: self.guest.clone() }).await?;
            outcome_of(&self.guest, context.failure_count())
        }
    }

    impl Handler<Queue> for Remind {
        async fn handle(&self, _: &mut Context<()>, _: &Queue) -> Result<Outcome, TaskError> {
            Ok(Outcome::completed())
        }
    }

    impl Front for Async {
        fn enqueue(&self, task: Invite, delay: Duration) -> JobId {
            let queue = block_on(Queue::connect(&self.0)).expect("a queue");
            block_on(queue.enqueue(Submit::from(task).delay(delay))).expect("enqueued").id
        }

        fn remind(&self, guest: &str, delay: Duration) {
            let queue = block_on(Queue::connect(&self.0)).expect("a queue");
            let task = Remind { guest: guest.to_owned() };
            block_on(queue.enqueue(Submit::from(task).delay(delay))).expect("enqueued");
        }

        fn go(&self, how: How) -> Drained {
            let queue = block_on(Queue::connect(&self.0)).expect("a queue");
            let builder = Worker::builder(queue).database(self.0.clone()).register::<Invite>().register::<Remind>();
            let worker = builder.backoff(Backoff::new(HOUR, HOUR)).jitter(0.0).build().expect("a worker");
            match how {
                How::Drain => block_on(worker.drain()),
                How::Next => block_on(worker.run_next()),
                How::One(id) => block_on(worker.run_one(id)),
            }
            .expect("it ends")
        }
    }
}

/// Runs a body with each front-end, in a schema of its own.
fn with_each(body: impl Fn(&TestSchema, &dyn Front)) {
    let schema_of_threads = schema();
    body(&schema_of_threads, &threads::Blocking(schema_of_threads.database()));
    let schema_of_futures = schema();
    body(&schema_of_futures, &futures::Async(schema_of_futures.database()));
}

#[test]
fn a_drain_runs_what_is_due_and_what_that_enqueues() {
    with_each(|schema, front| {
        assert!(front.go(How::Drain).ran.is_empty(), "nothing is there");
        for n in 0..20 {
            front.enqueue(invite(&n.to_string()), Duration::ZERO);
        }
        let drained = front.go(How::Drain);
        assert_eq!((drained.count(JournalEvent::Completed), drained.ran.len()), (40, 40));
        assert_eq!(drained.report.settled, 40);
        schema.assert_enqueued(&Expected::<Remind>::new().status(JobStatus::Completed).times(20));
    });
}

#[test]
fn jobs_for_later_and_retries_run_when_time_has_passed() {
    with_each(|schema, front| {
        let later = front.enqueue(invite("Ada"), HOUR);
        let failing = front.enqueue(invite("Bob"), Duration::ZERO);
        // By the rules of backoff the first two retries are free, and the third one waits.
        assert_eq!(front.go(How::Drain).outcomes_of(failing), [JournalEvent::Retried; 3]);
        schema.advance(HOUR / 2).expect("time passes");
        assert!(front.go(How::Drain).ran.is_empty(), "it is not time yet");
        schema.advance(HOUR / 2).expect("time passes");
        let drained = front.go(How::Drain);
        assert_eq!(drained.outcomes_of(later), [JournalEvent::Completed]);
        assert_eq!(drained.outcomes_of(failing), [JournalEvent::Completed]);
    });
}

#[test]
fn one_job_runs_and_no_other() {
    with_each(|_, front| {
        let [first, second, third] = ["a", "b", "c"].map(|guest| front.enqueue(invite(guest), Duration::ZERO));
        let ran = |how| front.go(how).ran.iter().map(|ran| ran.job).collect::<Vec<_>>();
        assert_eq!(ran(How::One(second)), [second]);
        assert_eq!(ran(How::One(second)), [], "it is done");
        assert_eq!(ran(How::Next), [first]);
        assert_eq!(ran(How::One(third)), [third]);
    });
}

#[test]
fn what_was_enqueued_is_found_by_task_time_and_key() {
    with_each(|schema, front| {
        schema.assert_enqueued(&Expected::<Invite>::new().times(0));
        front.enqueue(invite("Ada"), HOUR);
        front.enqueue(invite("Grace"), Duration::ZERO);
        let ada = || Expected::<Invite>::new().matching(|it| it.guest == "Ada");
        schema.assert_enqueued(&ada().due_in(HOUR).times(1));
        schema.advance(HOUR).expect("time passes");
        schema.assert_enqueued(&ada().due_in(HOUR).status(JobStatus::Pending));
        schema.assert_enqueued(&Expected::<Invite>::new().dedup_key("Grace").due_in(Duration::ZERO).times(1));
        let jobs = schema.jobs(JobFilter::new()).expect("jobs");
        let told = ada().due_in(HOUR / 2).times(2).check(&jobs).expect_err("it is due later");
        assert!(told.starts_with("expected 2 job(s) of the kind \"invite\", due in 1800s ± 1s"), "{told}");
        assert!(told.contains("found 0; of this kind there are 2") && told.contains("Ada"), "{told}");
    });
}

#[test]
fn an_assertion_that_fails_panics_with_what_is_there() {
    let schema = schema();
    let front = threads::Blocking(schema.database());
    front.remind("Ada", Duration::ZERO);
    let failing = AssertUnwindSafe(|| schema.assert_enqueued(&Expected::<Remind>::new().times(2)));
    let panic = catch_unwind(failing).expect_err("there is only one");
    let text = panic.downcast_ref::<String>().expect("text");
    assert!(text.contains("found 1; of this kind there are 1") && text.contains("Ada"), "{text}");
}

#[test]
fn a_claim_of_a_worker_that_is_gone_runs_out_when_time_has_passed() {
    with_each(|schema, front| {
        let id = front.enqueue(invite("Ada"), Duration::ZERO);
        let claim = format!(
            "UPDATE {}.live SET state = 2, run_count = 1, claimed_by = 'gone', claim_expires_at = now() + interval '1 min'",
            schema.name()
        );
        client().batch_execute(&claim).expect("claimed");
        assert!(front.go(How::Drain).ran.is_empty(), "somebody has it");
        schema.advance(Duration::from_secs(61)).expect("time passes");
        assert!(front.go(How::Drain).ran.is_empty(), "a recovered job waits");
        schema.advance(HOUR).expect("time passes");
        assert_eq!(front.go(How::Drain).outcomes_of(id), [JournalEvent::Completed]);
    });
}

fn client() -> postgres::Client {
    postgres::Client::connect(&cluster::shared_url().expect("a server"), postgres::NoTls).expect("connected")
}

fn exists(name: &str) -> bool {
    let found = client().query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&name]).expect("asked");
    !found.is_empty()
}

#[test]
fn a_schema_goes_with_its_test_also_by_a_panic() {
    let schema = schema();
    let name = schema.name().to_owned();
    assert!(exists(&name));
    let dying = AssertUnwindSafe(move || {
        let _schema = schema;
        panic!("a test that fails");
    });
    assert!(catch_unwind(dying).is_err());
    assert!(!exists(&name));
}
