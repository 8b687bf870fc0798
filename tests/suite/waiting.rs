//! Wake-up and waiting.

use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;

use super::front::{Front, WorkerSpec};
use super::place::{eventually, for_a_while};
use super::probe::{Kind, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

/// Inserts a job that nobody is told of.
fn insert_quietly(stage: &Stage<'_>, tag: &str) -> i64 {
    let payload = format!("{{\"tag\":\"{tag}\",\"runs\":[],\"filler\":\"\",\"decoding_panics\":false}}");
    stage
        .place
        .insert(&format!("INSERT INTO live (kind, payload) VALUES ('plain', '{{\"script\":{payload}}}') RETURNING id"))
}

/// Nothing but the notification can be what woke the worker: there is no poll, and nothing else is due. How soon it is
/// woken is printed by `scripts/figures`.
pub(crate) fn an_idle_worker_is_woken_by_each_job(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    for nth in 0..4 {
        stage.assert_works(&format!("{nth}"));
    }
}

/// Its lease tells when it was claimed, by the clock that tells when it was due.
pub(crate) fn a_delayed_job_starts_when_it_is_due_and_needs_no_poll(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let id = stage.enqueue(job("delayed").delayed(400 * MS).waiting("end"));
    let row = stage.place.job(id);
    assert!(row.run_count == 0 || row.due_in <= 0.0, "{row:?}");
    let run = stage.wait_start("delayed", 1);
    assert_eq!((run.run, run.due_at.duration_since(run.created_at).ok()), (1, Some(400 * MS)));
    assert_claimed_when_due(&stage, id);
    stage.open("end");
    stage.place.wait_status(id, "completed");
}

/// For a job that is claimed with the default lease, which nobody has renewed yet.
fn assert_claimed_when_due(stage: &Stage<'_>, id: i64) {
    let early =
        format!("SELECT count(*) FROM live WHERE id = {id} AND claim_expires_at < visible_at + interval '15 minutes'");
    assert_eq!(stage.place.number(&early), 0, "claimed before it was due");
}

/// Each makes the worker reckon anew when to wake, and those that are due later keep nobody from running.
pub(crate) fn jobs_for_later_keep_nobody_waiting_and_come_in_their_time(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let far = stage.enqueue(job("far").delayed(Duration::from_secs(3_600)));
    let near = stage.enqueue(job("near").delayed(700 * MS).waiting("end"));
    let nearest = stage.enqueue(job("nearest").delayed(300 * MS).waiting("end"));
    stage.assert_works("now");
    for (id, tag) in [(nearest, "nearest"), (near, "near")] {
        stage.wait_start(tag, 1);
        assert_claimed_when_due(&stage, id);
    }
    let row = stage.place.job(far);
    assert!(row.status == "pending" && row.due_in > 3_000.0, "{row:?}");
}

/// That it waits no longer is shown in simulated time.
pub(crate) fn a_job_that_nobody_was_told_of_is_found_by_the_next_poll(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec { poll_max: Some(400 * MS), ..WorkerSpec::default() });
    stage.assert_works("warm-up");
    for nth in 0..2 {
        let id = insert_quietly(&stage, &format!("{nth}"));
        stage.place.wait_status(id, "completed");
    }
}

pub(crate) fn a_listener_that_was_cut_off_listens_again_and_has_missed_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let before = stage.listeners();
    assert_eq!(before.len(), 1, "one connection listens");
    // Nobody was told of this one, and there is no poll: it is found by the look that follows LISTEN.
    let missed = insert_quietly(&stage, "missed");
    stage.place.terminate(&before);
    stage.place.wait_status(missed, "completed");
    eventually("another connection listens", || {
        stage.listeners().iter().any(|pid| !before.contains(pid)).then_some(())
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
    stage.work_on(&spec, database);
    stage.assert_works("first");
    stage.assert_works("second");
    assert!(stage.listeners().is_empty());
}

/// Everything that makes a job claimable says so, with the time that it will take.
pub(crate) fn each_write_that_makes_a_job_claimable_notifies(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut session = stage.place.listener();
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
    let first = stage.work_idle(&WorkerSpec { concurrency: Some(1), ..WorkerSpec::without_polls() });
    let id =
        stage.enqueue(job("passed on").run([Step::WaitForSignal, Step::Pause(Duration::ZERO)]).run([Step::Complete]));
    stage.wait_start("passed on", 1);
    stage.work_idle(&WorkerSpec::without_polls());
    first.stop();
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.place.events(id), ["paused", "completed"]);
}

pub(crate) fn a_kind_that_nobody_here_runs_wakes_nobody(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    stage.assert_works("warm-up");
    // What the warm-up set going may still go on for a moment; it comes to an end, and what a foreign kind sets going
    // would come with each of its notifications.
    eventually("a notification of a foreign kind costs no statement", || {
        let before = stage.place.last_statement();
        stage.enqueue(job("foreign").of(Kind::Other));
        for_a_while(200 * MS, "a worker that asks would have begun to");
        (stage.place.last_statement() == before).then_some(())
    });
}

/// Listening alone costs a session a transaction for each notification, whatever it is about.
pub(crate) fn a_kind_that_no_worker_runs_is_told_to_nobody(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut bystander = stage.place.bystander();
    stage.work_idle(&WorkerSpec::without_polls());
    for nth in 0..5 {
        stage.enqueue(job(format!("foreign {nth}")).of(Kind::Other));
        stage.enqueue(job(format!("later {nth}")).of(Kind::Third).delayed(Duration::from_secs(60)));
    }
    stage.assert_works("ours");
    let first = eventually("the worker was told of its own", || {
        let mut notifications = bystander.notifications();
        let heard = notifications.timeout_iter(50 * MS).next().expect("the session lives");
        heard.map(|it| it.payload().to_owned())
    });
    assert_eq!(first, "v1;plain;0", "all before it were told to nobody");
}

pub(crate) fn a_full_worker_looks_as_soon_as_a_handler_ends(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec { concurrency: Some(1), ..WorkerSpec::without_polls() });
    stage.enqueue(job("first").waiting("first"));
    stage.wait_start("first", 1);
    let second = stage.enqueue(job("second"));
    assert_eq!(stage.place.job(second).status, "pending");
    stage.open("first");
    stage.wait_start("second", 1);
}
