//! The queue's handle.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use postgres::fallible_iterator::FallibleIterator;
use venturi::{Effect, ErrorKind, OnDuplicate, RawJob};

use super::front::{Front, QueueSpec, WorkerSpec};
use super::place::eventually;
use super::probe::{Kind, job};
use super::stage::Stage;

/// How many tasks go together.
const BATCH: usize = 10_000;

const LIVE: &str = "SELECT count(*) FROM live";

/// However slow the machine is, no call is given up.
fn patient() -> QueueSpec {
    QueueSpec { timeout: Some(Duration::from_secs(3_600)), ..QueueSpec::default() }
}

/// Does something in the middle of a front-end's call, where the test's own client must not be used.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

pub(crate) fn many_callers_share_one_queue(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    let ids: Vec<i64> = thread::scope(|scope| {
        let call = |caller| {
            move || {
                (0..40)
                    .map(|nth| queue.enqueue(job(format!("{caller}.{nth}"))).expect("stored").id.get())
                    .collect::<Vec<_>>()
            }
        };
        let callers: Vec<_> = (0..6).map(|caller| scope.spawn(call(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    });
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 240);
    assert_eq!(stage.place.number("SELECT count(DISTINCT payload::text) FROM live"), 240);
    let connections = stage.place.rows("SELECT 1 FROM pg_stat_activity WHERE application_name = 'producer'", &[]);
    assert!(!connections.is_empty());
}

pub(crate) fn jobs_that_are_stored_together_keep_their_order(front: &dyn Front) {
    let stage = Stage::new(front);
    assert!(stage.enqueue_many(Kind::Plain, []).is_empty(), "nothing at all is no error");
    let ids = stage.enqueue_many(Kind::Plain, (0..2_500).map(|nth| job(format!("{nth}"))));
    assert_eq!(ids.len(), 2_500);
    assert!(ids.is_sorted());
    let stored = stage.queue().enqueue(job("one")).expect("stored");
    assert_eq!(stored.effect, Effect::Inserted);
    let tags = stage.place.rows("SELECT payload->'script'->>'tag' FROM live ORDER BY created_at, id LIMIT 2500", &[]);
    let wanted = (0..2_500).map(|nth| nth.to_string());
    assert!(tags.iter().map(|row| row.get::<_, String>(0)).eq(wanted));
}

/// The end of a quiet connection is found out before anything is sent over it, so the call is not left in doubt.
pub(crate) fn a_queue_whose_connection_was_cut_connects_again(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = front.connect(&stage.place.database()).expect("a queue");
    for nth in 0..3 {
        queue.enqueue(job(format!("before {nth}"))).expect("stored");
        let quiet = "clock_timestamp() - state_change > interval '50 ms'";
        eventually("the connection is quiet", || (stage.place.backends(quiet).len() == 1).then_some(()));
        stage.place.terminate(&stage.place.backends("true"));
        queue.enqueue(job(format!("after {nth}"))).expect("stored");
    }
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 6);
}

pub(crate) fn any_number_of_jobs_is_stored_while_it_is_pulled(front: &dyn Front) {
    const COUNT: usize = 2 * BATCH + 5_000;
    let stage = Stage::new(front);
    let mut jobs = (0..COUNT).map(|nth| {
        if nth == 2 * BATCH {
            assert!(aside(|| stage.place.number(LIVE)) >= 10_000, "what was pulled first is stored by now");
        }
        let job = job(format!("{nth}")).with_filler(if nth % 2_000 == 7 { 2_000 } else { 0 });
        if nth % 5 == 0 { job.delayed(Duration::from_secs(3_600)) } else { job }
    });
    let stored = stage.queue().enqueue_from(Kind::Plain, &mut jobs).expect("stored");
    assert_eq!((stored.len(), stored.is_sorted_by_key(|it| it.id)), (COUNT, true));
    let sql = "SELECT count(*) FROM jobs WHERE status = 'pending' AND payload->'script'->>'tag' = (id - $1)::text
               AND (visible_at > now()) = ((id - $1) % 5 = 0)";
    let first = stored[0].id.get();
    assert_eq!(stage.place.rows(sql, &[&first])[0].get::<_, i64>(0), 25_000);
    assert_eq!(stage.place.number("SELECT count(*) FROM payload"), 13);
}

pub(crate) fn what_is_stored_of_many_is_said_so_that_a_caller_can_go_on(front: &dyn Front) {
    let stage = Stage::new(front);
    let jobs = |from: usize| (from..2 * BATCH + 10).map(|nth| job(format!("{nth}")));
    let mut broken = jobs(0).inspect(|job| assert_ne!(job.script.tag, "20005", "the source ran dry"));
    let error = stage.queue().enqueue_from(Kind::Plain, &mut broken).expect_err("the iterator panics");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Partly, false), "{error}");
    assert!(error.to_string().contains("the source ran dry"), "{error}");
    let partial = error.partial().expect("how far it went");
    assert_eq!((partial.enqueued.len(), partial.in_doubt), (2 * BATCH, 0));
    let rest = stage.queue().enqueue_from(Kind::Plain, &mut jobs(partial.enqueued.len())).expect("stored");
    assert_eq!(rest.len(), 10);
    let distinct = "SELECT count(DISTINCT payload->'script'->>'tag') FROM live";
    assert_eq!((stage.place.number(LIVE), stage.place.number(distinct)), (20_010, 20_010));
}

/// The second batch waits for a lock when its connection is cut, so it was sent and not committed.
pub(crate) fn a_batch_whose_answer_was_lost_is_in_doubt_and_no_later_one_is_stored(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = front.connect_as(&stage.place.database(), &patient()).expect("a queue");
    let place = &stage.place;
    let mut lock = place.session();
    let mut jobs = (0..4 * BATCH).map(|nth| {
        if nth == 2 * BATCH - 1 {
            aside(|| {
                eventually("the first batch is stored", || (place.number(LIVE) > 0).then_some(()));
                lock.batch_execute("BEGIN; LOCK TABLE live IN SHARE MODE").expect("a lock");
            });
        }
        if nth == 2 * BATCH {
            aside(|| {
                eventually("the second waits", || {
                    let waiting = place.backends("wait_event_type = 'Lock'");
                    (!waiting.is_empty()).then(|| place.terminate(&waiting))
                });
                lock.batch_execute("ROLLBACK").expect("no lock");
            });
        }
        job(format!("{nth}"))
    });
    let error = queue.enqueue_from(Kind::Plain, &mut jobs).expect_err("the connection was cut");
    assert_eq!(error.kind(), ErrorKind::Partly, "{error}");
    let partial = error.partial().expect("how far it went");
    assert_eq!((partial.enqueued.len(), partial.in_doubt), (BATCH, BATCH), "{error}");
    assert_eq!(place.number(LIVE), 10_000);
    queue.enqueue(job("after it")).expect("the queue connects again");
}

pub(crate) fn a_call_that_the_server_takes_too_late_is_not_stored(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = QueueSpec { timeout: Some(Duration::from_millis(100)), ..QueueSpec::default() };
    let queue = front.connect_as(&stage.place.database(), &spec).expect("a queue");
    let mut lock = stage.place.session();
    lock.batch_execute("BEGIN; LOCK TABLE live IN SHARE MODE").expect("a lock");
    let error = queue.enqueue(job("late")).expect_err("the table is locked");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::NotEnqueued, true), "{error}");
    lock.batch_execute("ROLLBACK").expect("no lock");
    stage.enqueue(job("in time"));
    assert_eq!(stage.place.number(LIVE), 1);
}

pub(crate) fn calls_beyond_what_may_wait_are_refused_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = QueueSpec { max_waiting: Some(0), ..patient() };
    let queue = front.connect_as(&stage.place.database(), &spec).expect("a queue");
    let mut lock = stage.place.session();
    lock.batch_execute("BEGIN; LOCK TABLE live IN SHARE MODE").expect("a lock");
    let answers: Vec<_> = thread::scope(|scope| {
        let call = |tag: &'static str| {
            let queue = &queue;
            scope.spawn(move || queue.enqueue(job(tag)).map(drop).map_err(|error| error.kind()))
        };
        let first = call("on its way");
        let waiting = || (!stage.place.backends("wait_event_type = 'Lock'").is_empty()).then_some(());
        eventually("the first is on its way", waiting);
        let others = ["second", "third", "fourth"].map(call);
        eventually("all but one are refused", || {
            (others.iter().filter(|caller| caller.is_finished()).count() == 2).then_some(())
        });
        lock.batch_execute("ROLLBACK").expect("no lock");
        [first].into_iter().chain(others).map(|caller| caller.join().expect("no panic")).collect()
    });
    let refused = answers.iter().filter(|answer| **answer == Err(ErrorKind::Overloaded)).count();
    assert_eq!((refused, stage.place.number(LIVE)), (2, 2), "{answers:?}");
}

pub(crate) fn a_job_is_due_at_the_instant_it_was_given(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let at = |offset: &str| {
        let sql = format!("SELECT date_trunc('milliseconds', clock_timestamp() + interval '{offset}')");
        stage.place.rows(&sql, &[])[0].get::<_, SystemTime>(0)
    };
    let (past, soon) = (at("-1 day"), at("1.5 s"));
    let ids = [past, soon].map(|due| stage.enqueue(job("due").due_at(due)));
    for (id, due) in ids.into_iter().zip([past, soon]) {
        stage.place.wait_status(id, "completed");
        let sql = "SELECT visible_at = greatest($2, created_at), finished_at >= visible_at FROM finished WHERE id = $1";
        let row = &stage.place.rows(sql, &[&id, &due])[0];
        assert_eq!((row.get::<_, bool>(0), row.get::<_, bool>(1)), (true, true));
    }
}

pub(crate) fn a_job_without_a_type_is_stored_and_run_like_any_other(front: &dyn Front) {
    let stage = Stage::new(front);
    let typed = stage.enqueue(job("typed").with_filler(2_000));
    let payload = stage.place.job(typed).payload.expect("a payload");
    stage.queue().cancel(typed).expect("an answer");
    let raw = || RawJob::new("plain", payload.clone()).expect("JSON");
    let later = |raw: RawJob| raw.delay(Duration::from_secs(60)).dedup_key("k").expect("a key");
    let enqueue = |raw| stage.queue().enqueue_raw(raw).map(|it| (it.id.get(), it.effect)).expect("stored");
    let (first, effect) = enqueue(later(raw()));
    assert_eq!(effect, Effect::Inserted);
    assert_eq!(enqueue(later(raw()).on_duplicate(OnDuplicate::Keep)), (first, Effect::Kept));
    assert_ne!(enqueue(later(raw()).on_duplicate(OnDuplicate::Independent)).0, first);
    stage.work_idle(&WorkerSpec::without_polls());
    let (replaced, effect) = enqueue(raw().dedup_key("k").expect("a key"));
    assert_eq!((replaced, effect), (first, Effect::Replaced));
    stage.place.wait_status(first, "completed");
    stage.place.wait_status(enqueue(raw()).0, "completed");
}

pub(crate) fn a_quiet_queue_tells_nobody(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = QueueSpec { notify: Some(false), ..QueueSpec::default() };
    let quiet = front.connect_as(&stage.place.database(), &spec).expect("a queue");
    let mut listener = stage.place.listener();
    quiet.enqueue(job("quiet")).expect("stored");
    stage.enqueue(job("loud"));
    let mut notifications = listener.notifications();
    let first = notifications.timeout_iter(Duration::from_secs(20)).next().expect("a connection");
    assert!(first.is_some() && notifications.iter().next().expect("a connection").is_none(), "one of two tells");
}
