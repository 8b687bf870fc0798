//! Wake-up and waiting.

use std::thread;
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;

use super::front::{Front, WorkerSpec};
use super::place::{eventually, eventually_within};
use super::probe::{Kind, Step, job};
use super::stage::Stage;

/// So long that a test which needs a poll does not get it.
const NO_POLL: Option<Duration> = Some(Duration::from_secs(3_600));

const MS: Duration = Duration::from_millis(1);

fn without_polls() -> WorkerSpec {
    WorkerSpec { poll_max: NO_POLL, ..WorkerSpec::default() }
}

/// Inserts a job that nobody is told of.
fn insert_quietly(stage: &Stage<'_>, tag: &str) -> i64 {
    let payload = format!("{{\"tag\":\"{tag}\",\"runs\":[],\"filler\":\"\",\"decoding_panics\":false}}");
    stage
        .place
        .insert(&format!("INSERT INTO live (kind, payload) VALUES ('plain', '{{\"script\":{payload}}}') RETURNING id"))
}

/// How many want each of the machine's cores at this moment, at least 1. The figures below hold for a machine that has
/// nothing else to do; beside other tests each step waits for its turn.
fn crowd() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let runnable = load.split(' ').nth(3).and_then(|counts| counts.split('/').next()?.parse().ok()).unwrap_or(1);
    let cores = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    u32::div_ceil(runnable, cores).max(1)
}

pub(crate) fn an_idle_worker_starts_a_job_within_fifty_milliseconds(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&without_polls());
    stage.assert_works("warm-up");
    let mut found = Vec::new();
    for attempt in 0..6 {
        let mut crowds = 1;
        let mut times: Vec<Duration> = (0..7)
            .map(|nth| {
                let tag = format!("{attempt}.{nth}");
                let before = Instant::now();
                let id = stage.enqueue(job(&tag));
                let took = stage.wait_start(&tag, 1).started - before;
                stage.place.wait_status(id, "completed");
                crowds = crowd().max(crowds);
                took
            })
            .collect();
        times.sort();
        if times[3] < 50 * MS * crowds {
            println!("enqueue to start: {:?}, {crowds} for each core", times[3]);
            return;
        }
        found.push((times[3], crowds));
    }
    panic!("the medians of six attempts, and how many wanted each core: {found:?}");
}

pub(crate) fn a_delayed_job_starts_when_it_is_due_and_needs_no_poll(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&without_polls());
    let mut late = Vec::new();
    for attempt in 0..4 {
        let tag = format!("attempt {attempt}");
        let before = Instant::now();
        let id = stage.enqueue(job(&tag).delayed(Duration::from_secs(1)));
        let after = Instant::now();
        let row = stage.place.job(id);
        assert_eq!((row.status.as_str(), row.run_count), ("pending", 0));
        let started = stage.wait_start(&tag, 1).started;
        assert!(started - before >= 1_000 * MS, "{:?} is too early", started - before);
        if started - after <= 1_000 * MS + 300 * MS * crowd() {
            return;
        }
        late.push(started - after);
    }
    panic!("four times too late: {late:?}");
}

pub(crate) fn jobs_for_later_keep_nobody_waiting_and_come_in_their_time(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&without_polls());
    let far = stage.enqueue(job("far").delayed(Duration::from_secs(3_600)));
    stage.enqueue(job("near").delayed(3_000 * MS));
    stage.enqueue(job("nearest").delayed(1_500 * MS));
    stage.enqueue(job("now"));
    stage.wait_start("near", 1);
    assert_eq!(stage.order(), ["now", "nearest", "near"]);
    let row = stage.place.job(far);
    assert!(row.status == "pending" && row.due_in > 3_000.0, "{row:?}");
}

pub(crate) fn a_job_that_nobody_was_told_of_waits_for_the_poll_and_no_longer(front: &dyn Front) {
    let stage = Stage::new(front);
    let poll_max = 1_500 * MS;
    stage.work_idle(&WorkerSpec { poll_max: Some(poll_max), ..WorkerSpec::default() });
    stage.assert_works("warm-up");
    let mut late = Vec::new();
    for attempt in 0..4 {
        let tag = format!("attempt {attempt}");
        let before = Instant::now();
        let id = insert_quietly(&stage, &tag);
        let took = stage.wait_start(&tag, 1).started - before;
        stage.place.wait_status(id, "completed");
        if took <= poll_max + 300 * MS * crowd() {
            return;
        }
        late.push(took);
    }
    panic!("four times too late: {late:?}");
}

pub(crate) fn a_listener_that_was_cut_off_listens_again_and_has_missed_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&without_polls());
    let listening = "query LIKE '%LISTEN%'";
    let before = stage.place.backends(listening);
    assert_eq!(before.len(), 1, "one connection listens");
    // Nobody was told of this one, and there is no poll: it is found by the look that follows LISTEN.
    let missed = insert_quietly(&stage, "missed");
    stage.place.terminate(&before);
    stage.place.wait_status(missed, "completed");
    eventually("another connection listens", || {
        stage.place.backends(listening).iter().any(|pid| !before.contains(pid)).then_some(())
    });
    for nth in 0..3 {
        let id = stage.enqueue(job(format!("after {nth}")));
        stage.place.wait_status(id, "completed");
    }
}

pub(crate) fn a_worker_that_may_not_listen_polls(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { poll_max: Some(100 * MS), ..WorkerSpec::default() };
    let database = stage.place.database().listen(false);
    let running = front.start(&spec, database, std::sync::Arc::clone(&stage.lab)).expect("a worker");
    stage.keep(running);
    stage.assert_works("first");
    stage.assert_works("second");
    assert!(stage.place.backends("query LIKE '%LISTEN%'").is_empty());
}

/// Everything that makes a job claimable says so, with the time that it will take.
pub(crate) fn each_write_that_makes_a_job_claimable_notifies(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut session = stage.place.session();
    session.batch_execute(&format!("LISTEN \"{}\"", stage.place.schema)).expect("listening");
    let mut hear = |what: &str, wanted: &dyn Fn(&str) -> bool| {
        eventually(what, || {
            let mut notifications = session.notifications();
            let heard = notifications.timeout_iter(50 * MS).next().expect("the session lives");
            heard.filter(|it| wanted(it.payload())).map(drop)
        });
    };
    let about = |kind: &'static str, due: std::ops::RangeInclusive<u64>| {
        move |payload: &str| {
            let parts: Vec<&str> = payload.split(';').collect();
            let fits = |text: &&str| text.parse().is_ok_and(|ms: u64| due.contains(&ms));
            parts.first() == Some(&"v1") && parts.get(1) == Some(&kind) && parts.get(2).is_some_and(fits)
        }
    };
    stage.enqueue(job("foreign").of(Kind::Third));
    hear("an enqueue", &about("third", 0..=0));
    stage.enqueue(job("later").of(Kind::Third).delayed(Duration::from_secs(60)));
    hear("an enqueue for later", &about("third", 50_000..=60_000));
    let worker = stage
        .work(&WorkerSpec { shutdown_timeout: Some(MS), ..WorkerSpec::of(&[Kind::Plain, Kind::Steady, Kind::Other]) });
    stage.enqueue(job("paused").run([Step::Pause(Duration::from_secs(30))]));
    hear("a pause", &about("plain", 20_000..=30_000));
    // The first two failures are free, the third waits.
    stage.enqueue(job("retried").of(Kind::Steady).failing(3));
    hear("a retry", &about("steady", 300..=700));
    let expired = "INSERT INTO live (kind, payload, state, run_count, claimed_by, claim_expires_at) \
         VALUES ('steady', '{}', 2, 1, 'ghost', now() - interval '1 second') RETURNING id";
    stage.place.insert(expired);
    // Recovery looks before it claims, so there is something to claim.
    stage.assert_works("look");
    hear("a recovery", &about("steady", 300..=700));
    if !stage.on_threads() {
        let held = stage.enqueue(job("held").of(Kind::Other).waiting("never"));
        stage.wait_start("held", 1);
        hear("an enqueue before a release", &about("other", 0..=0));
        worker.tell_to_stop();
        hear("a release", &about("other", 0..=0));
        assert_eq!(stage.place.events(held), ["released"]);
    }
}

pub(crate) fn what_one_worker_puts_back_another_takes_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let first = stage.work_idle(&WorkerSpec { concurrency: Some(1), ..without_polls() });
    let id =
        stage.enqueue(job("passed on").run([Step::WaitForSignal, Step::Pause(Duration::ZERO)]).run([Step::Complete]));
    stage.wait_start("passed on", 1);
    stage.work_idle(&without_polls());
    first.stop();
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.place.events(id), ["paused", "completed"]);
}

pub(crate) fn a_kind_that_nobody_here_runs_wakes_nobody(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&without_polls());
    stage.assert_works("warm-up");
    let statements = || {
        let sql = "SELECT coalesce(max(extract(epoch FROM query_start) * 1000), 0)::int8 FROM pg_stat_activity \
             WHERE application_name = current_schema()";
        stage.place.number(sql)
    };
    // All that the warm-up set going has come to its end when nothing more is begun for a while.
    let quiet = eventually("the worker is idle", || {
        let before = statements();
        thread::sleep(400 * MS);
        (statements() == before).then_some(before)
    });
    stage.enqueue_many(Kind::Other, (0..5).map(|nth| job(format!("{nth}")).of(Kind::Other)));
    thread::sleep(300 * MS);
    assert_eq!(statements(), quiet, "a foreign kind's notification costs no statement");
}

pub(crate) fn a_full_worker_looks_as_soon_as_a_handler_ends(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec { concurrency: Some(1), ..without_polls() });
    stage.enqueue(job("first").waiting("first"));
    stage.wait_start("first", 1);
    let second = stage.enqueue(job("second"));
    assert_eq!(stage.place.job(second).status, "pending");
    stage.open("first");
    eventually_within(Duration::from_secs(30), "the second runs", || (stage.starts("second") == 1).then_some(()));
}
