//! What is wrong from the start is said at once and clearly; what is merely odd is taken as documented.

use std::time::{Duration, UNIX_EPOCH};

use venturi::{Database, Error, ErrorKind};

use super::front::{Front, QueueSpec, WorkerSpec, refusals};
use super::place;
use super::probe::{Kind, Step, job};
use super::stage::Stage;

/// The shared server, addressed in another way.
fn elsewhere(change: impl FnOnce(&mut tokio_postgres::Config) -> &mut tokio_postgres::Config) -> Database {
    let mut config: tokio_postgres::Config = place::url().parse().expect("a proper DSN");
    change(&mut config);
    Database::from_config(config).expect("a proper database")
}

/// The one error that worker, queue and migration agree on.
fn refused(front: &dyn Front, database: &Database) -> Error {
    let [migration, queue, worker] = refusals(front, database);
    assert_eq!([worker.kind(), queue.kind()], [migration.kind(); 2], "{worker}; {queue}; {migration}");
    assert!(!worker.is_retryable());
    migration
}

fn build_error(front: &dyn Front, spec: &WorkerSpec) -> Error {
    let database = Database::new("postgres://nobody@127.0.0.1:1/nothing").expect("a proper DSN");
    match front.start(spec, database, Default::default()) {
        Ok(_) => panic!("a worker was built from {spec:?}"),
        Err(error) => error,
    }
}

pub(crate) fn without_a_server_a_call_says_so_and_a_worker_waits(front: &dyn Front) {
    let nowhere = Database::new("postgres://nobody@127.0.0.1:1/nothing").expect("a proper DSN");
    for error in [front.migrate(&nowhere).err(), front.connect(&nowhere).err()] {
        let error = error.expect("there is no server");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
    let worker = front.start(&WorkerSpec::default(), nowhere, Default::default()).expect("a worker");
    place::for_a_while(Duration::from_millis(200), "it has found that nobody answers");
    assert!(!worker.has_ended());
    worker.stop();
}

pub(crate) fn a_wrong_password_is_an_error_that_names_no_password(front: &dyn Front) {
    let error = refused(front, &elsewhere(|config| config.password("open sesame")));
    assert_eq!(error.kind(), ErrorKind::Authentication);
    let text = format!("{error} {error:?}");
    assert!(text.contains("password authentication failed") && !text.contains("sesame"), "{text}");
}

pub(crate) fn an_unknown_user_is_an_error(front: &dyn Front) {
    let error = refused(front, &elsewhere(|config| config.user("nobody_at_all")));
    assert_eq!(error.kind(), ErrorKind::Authentication);
}

pub(crate) fn an_unknown_database_is_an_error_that_names_it(front: &dyn Front) {
    let error = refused(front, &elsewhere(|config| config.dbname("atlantis")));
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("atlantis"), "{error}");
}

pub(crate) fn a_malformed_dsn_is_an_error_that_repeats_no_secret(_: &dyn Front) {
    for dsn in
        ["", "nonsense", "postgres://u:secret@host:port/db", "host=h password=secret options", "host=h port=secret"]
    {
        let error = Database::new(dsn).expect_err("malformed");
        assert_eq!(error.kind(), ErrorKind::Config, "{dsn}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

pub(crate) fn a_worker_without_kinds_is_refused(front: &dyn Front) {
    let error = build_error(front, &WorkerSpec::of(&[]));
    assert_eq!(error.kind(), ErrorKind::NoKinds);
    assert!(error.to_string().contains("register"), "{error}");
}

pub(crate) fn a_kind_that_is_registered_twice_is_refused_with_both_its_types(front: &dyn Front) {
    let error = build_error(front, &WorkerSpec::of(&[Kind::Plain, Kind::Other, Kind::Twin]));
    assert_eq!(error.kind(), ErrorKind::DuplicateKind);
    let text = error.to_string();
    assert!(["\"plain\"", "::Plain", "::Twin"].iter().all(|part| text.contains(part)), "{text}");
}

pub(crate) fn no_slots_count_as_one(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..6).map(|nth| job(format!("{nth}"))));
    stage.work(&WorkerSpec { concurrency: Some(0), ..WorkerSpec::default() });
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.peak), 1);
}

pub(crate) fn values_without_a_meaning_are_refused_by_name(front: &dyn Front) {
    let ten_thousand_and_one = WorkerSpec { concurrency: Some(10_001), ..WorkerSpec::default() };
    let hasty = WorkerSpec { lease: Some(Duration::from_secs(2)), ..WorkerSpec::default() };
    let instant = WorkerSpec { timeout: Some(Duration::ZERO), ..WorkerSpec::default() };
    let uncertain = WorkerSpec { jitter: f64::NAN, ..WorkerSpec::default() };
    let nameless = WorkerSpec { claimed_by: Some("a\nb".to_owned()), ..WorkerSpec::default() };
    let specs = [
        ("concurrency", ten_thousand_and_one),
        ("lease", hasty),
        ("timeout", instant),
        ("jitter", uncertain),
        ("claimed_by", nameless),
    ];
    for (knob, spec) in specs {
        let error = build_error(front, &spec);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(knob), "{knob}: {error}");
    }
}

pub(crate) fn no_time_at_all_is_as_little_as_is_possible(front: &dyn Front) {
    let stage = Stage::new(front);
    let zero = Some(Duration::ZERO);
    let spec = WorkerSpec {
        poll_max: zero,
        lease: zero,
        renew_leases: false,
        shutdown_timeout: zero,
        ..WorkerSpec::default()
    };
    let worker = stage.work(&WorkerSpec { backoff: Some((Duration::ZERO, Duration::ZERO)), jitter: -1.0, ..spec });
    let (_, row) = stage.finish(job("hurried").failing(3));
    assert_eq!((row.status.as_str(), row.run_count), ("completed", 4));
    worker.stop();
}

pub(crate) fn absurdly_long_times_are_cut_and_work(front: &dyn Front) {
    let stage = Stage::new(front);
    let max = Some(Duration::MAX);
    let spec = WorkerSpec { poll_max: max, lease: max, shutdown_timeout: max, timeout: max, ..WorkerSpec::default() };
    let worker = stage.work(&WorkerSpec { backoff: Some((Duration::MAX, Duration::MAX)), jitter: 9.0, ..spec });
    let claimed = stage.enqueue(job("claimed").waiting("end"));
    stage.wait_start("claimed", 1);
    let left = stage.place.job(claimed).lease_left.expect("a lease");
    assert!((364.0..=365.0).contains(&(left / 86_400.0)), "{left}");
    let parked = stage.enqueue(job("parked").delayed(Duration::MAX));
    let paused = stage.enqueue(job("paused").run([Step::Pause(Duration::MAX)]));
    let failed = stage.enqueue(job("failed").run([Step::Fail("no".to_owned())]));
    stage.place.wait_job(failed, "failed three times", |row| row.failure_count == 3);
    stage.place.wait_job(paused, "paused", |row| row.run_count == 1 && row.status == "pending");
    for id in [parked, paused, failed] {
        let years = stage.place.job(id).due_in / 86_400.0 / 365.0;
        assert!((0.0..=101.0).contains(&years), "{years} years");
    }
    stage.open("end");
    stage.place.wait_status(claimed, "completed");
    worker.stop();
}

pub(crate) fn a_payload_that_is_too_large_is_refused_and_the_queue_goes_on(front: &dyn Front) {
    let stage = Stage::new(front);
    let error = stage.queue().enqueue(job("huge").with_filler(1_000_001)).expect_err("it is too large");
    assert_eq!(error.kind(), ErrorKind::Payload);
    let jobs = vec![job("small"), job("huge").with_filler(1_000_001)];
    let error = stage.queue().enqueue_many(Kind::Plain, jobs).expect_err("one of them is too large");
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 0, "all or none");
    stage.enqueue(job("after it"));
}

pub(crate) fn a_queue_takes_payloads_as_large_as_it_was_told(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = |max_payload| {
        let spec = QueueSpec { max_payload: Some(max_payload), ..QueueSpec::default() };
        front.connect_as(&stage.place.database(), &spec).expect("a queue")
    };
    for (none, most) in [(0, 1), (1, 1), (200, 200)] {
        let error = queue(none).enqueue(job("small").with_filler(200)).expect_err("it is too large");
        assert_eq!(error.kind(), ErrorKind::Payload);
        assert!(error.to_string().contains(&format!("at most {most} are stored")), "{error}");
    }
    queue(usize::MAX).enqueue(job("large").with_filler(3_000_000)).expect("stored");
    assert_eq!(stage.place.number("SELECT count(*) FROM jobs WHERE octet_length(payload::text) > 3000000"), 1);
}

pub(crate) fn instants_that_nobody_means_are_brought_into_range(front: &dyn Front) {
    let stage = Stage::new(front);
    let far = |seconds| Duration::from_secs(seconds);
    let earliest = (0..63).rev().find_map(|bits| UNIX_EPOCH.checked_sub(far(1 << bits))).expect("before 1970");
    let latest = (0..63).rev().find_map(|bits| UNIX_EPOCH.checked_add(far(1 << bits))).expect("after 1970");
    let instants = [earliest, UNIX_EPOCH - far(1), UNIX_EPOCH, UNIX_EPOCH + far(253_402_300_800), latest];
    let stored: Vec<i64> = instants.map(|at| stage.enqueue(job("odd").due_at(at))).to_vec();
    let many = (0..3_000).map(|nth| job("odd").due_at(instants[nth % instants.len()]));
    let copied = stage.enqueue_many(Kind::Plain, many);
    // What was due in the past is due since it was stored.
    let since = "SELECT CASE WHEN visible_at BETWEEN created_at AND now() THEN 0 ELSE extract(epoch FROM visible_at)::bigint \
                 END FROM live WHERE id = ANY ($1) ORDER BY id";
    for ids in [&stored, &copied[..5].to_vec()] {
        let due: Vec<i64> = stage.place.rows(since, &[ids]).iter().map(|row| row.get(0)).collect();
        assert_eq!(due, [0, 0, 0, 253_402_300_799, 253_402_300_799]);
    }
    let states = "SELECT count(*) FROM live WHERE state = (visible_at > now())::int";
    assert_eq!(stage.place.number(states), 3_005, "past ones are ready");
}
