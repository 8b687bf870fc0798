//! Rows that a person has spoilt, names that look like SQL, and roles that may do no more than they must.

use std::time::Duration;

use venturi::{CancelOutcome, Cleanup, JobFilter, JobStatus, RequeueOutcome};

use super::front::{Front, WorkerSpec};
use super::place::{eventually, fresh_name};
use super::probe::{Kind, Manner, Step, job};
use super::stage::Stage;

/// So that nothing stands in a careless person's way.
const NO_RULES: &str = "\
    ALTER TABLE live DROP CONSTRAINT live_valid; ALTER TABLE journal DROP CONSTRAINT journal_valid; \
    DROP INDEX journal_run; \
    ALTER TABLE live ALTER created_at DROP NOT NULL, ALTER visible_at DROP NOT NULL, ALTER run_count DROP NOT NULL, \
    ALTER failure_count DROP NOT NULL, ALTER priority DROP NOT NULL, ALTER state DROP NOT NULL";

/// What is set in one row each.
const NONSENSE: &[&str] = &[
    "created_at = 'infinity'",
    "created_at = '-infinity'",
    "created_at = '4713-01-01 BC'",
    "created_at = '294276-12-31'",
    "created_at = NULL",
    "visible_at = 'infinity'",
    "visible_at = '-infinity'",
    "visible_at = NULL",
    "state = 1, visible_at = 'infinity'",
    "state = 1, visible_at = '-infinity'",
    "state = 1, visible_at = '4713-01-01 BC'",
    "state = 1, visible_at = NULL",
    "state = 7",
    "state = -1",
    "state = NULL",
    "kind = 'nobody''s'",
    "kind = ''",
    "kind = repeat('k', 2000)",
    "priority = 77",
    "priority = -5",
    "priority = NULL",
    "payload = NULL",
    "payload = 'null'",
    "payload = '[]'",
    r#"payload = '"\u0000"'"#,
    "payload = (repeat('[', 5000) || repeat(']', 5000))::json",
    "payload = '1e999'",
    "run_count = 2147483647",
    "run_count = -5",
    "run_count = -2147483648",
    "run_count = NULL",
    "failure_count = 2147483647",
    "failure_count = -1",
    "failure_count = -2147483648",
    "failure_count = NULL",
    r#"carry = '"text"'"#,
    "carry = 'null'",
    "carry = '1e999'",
    "dedup_key = ''",
    "dedup_key = repeat('d', 2000)",
    "claimed_by = ''",
    "claim_expires_at = 'infinity'",
    "cancel_requested_at = '-infinity'",
    "state = 2",
    "state = 2, claimed_by = ''",
    "state = 2, claimed_by = '', claim_expires_at = now()",
    "state = 2, claimed_by = 'x', claim_expires_at = '-infinity'",
    "state = 2, claimed_by = 'x', claim_expires_at = 'infinity'",
    "state = 2, claimed_by = NULL, claim_expires_at = now()",
    "state = 2, claimed_by = 'x', claim_expires_at = now(), run_count = NULL",
    "state = 2, claimed_by = 'x', claim_expires_at = now(), run_count = -7, failure_count = -9",
    "state = 2, claimed_by = 'x', claim_expires_at = now(), failure_count = NULL",
    "state = 2, claimed_by = 'x', claim_expires_at = now(), run_count = -2147483648",
    "state = 2, claimed_by = 'x', claim_expires_at = now(), priority = 77, cancel_requested_at = 'infinity'",
];

/// What is written beside one job each, whose number is `{id}`.
const BESIDE: &[&str] = &[
    FINISHED,
    "INSERT INTO journal (job_id, run_no, event, claimed_by) SELECT {id}, 1, 6, 'x' FROM generate_series(1, 3)",
    "INSERT INTO journal (job_id, run_no, event, at) VALUES ({id}, -1, 77, 'infinity'), ({id}, 0, -3, '-infinity')",
    "INSERT INTO payload (job_id, body) VALUES ({id}, '[[[]]]')",
];

const FINISHED: &str = "INSERT INTO finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, \
     kind, claimed_by) VALUES ({id}, now(), now(), 9, 0, 1, 3, 3, 'plain', 'somebody')";

fn spoil(stage: &Stage<'_>) {
    stage.place.run(NO_RULES);
    let jobs = |count: usize| (0..count).map(|nth| job(format!("odd {nth}"))).collect::<Vec<_>>();
    for (id, change) in stage.enqueue_many(Kind::Plain, jobs(NONSENSE.len())).into_iter().zip(NONSENSE) {
        stage.place.run(&format!("UPDATE live SET {change} WHERE id = {id}"));
    }
    for (id, addition) in stage.enqueue_many(Kind::Plain, jobs(BESIDE.len())).into_iter().zip(BESIDE) {
        stage.place.run(&addition.replace("{id}", &id.to_string()));
    }
}

/// In whichever order they are met: the good ones are both older and younger, and work goes on after all have been met.
pub(crate) fn rows_edited_into_nonsense_stall_no_worker(front: &dyn Front) {
    for discard in [false, true] {
        let stage = Stage::new(front);
        let good = |name: &str| stage.enqueue_many(Kind::Plain, (0..10).map(|nth| job(format!("{name} {nth}"))));
        let older = good("older");
        spoil(&stage);
        let younger = good("younger");
        let spec = WorkerSpec {
            poll_max: Some(Duration::from_millis(200)),
            backoff: Some((Duration::from_millis(10), Duration::from_millis(50))),
            backstop: Some(Some(3)),
            discard_completed: discard,
            ..WorkerSpec::default()
        };
        let workers = [stage.work(&spec), stage.work(&spec)];
        let left = |ids: &[i64]| {
            let sql = "SELECT 1 FROM live WHERE id = ANY ($1)";
            stage.place.rows(sql, &[&ids]).is_empty().then_some(())
        };
        eventually("the good ones are done", || left(&older).and_then(|()| left(&younger)));
        eventually("what can end has ended", || {
            let sql = "SELECT count(*) FROM live WHERE kind = 'plain' AND state IN (0, 1) AND priority >= 0 \
                 AND (state = 0 OR visible_at < 'infinity')";
            (stage.place.number(sql) == 0).then_some(())
        });
        eventually("what ran out in any age has been recovered", || {
            let sql = "SELECT count(*) FROM live WHERE state = 2 AND claim_expires_at = '-infinity' AND kind = 'plain'";
            (stage.place.number(sql) == 0).then_some(())
        });
        let last = stage.enqueue(job("last"));
        eventually("work goes on", || left(&[last]));
        asked_about(&stage);
        for worker in workers {
            worker.stop();
        }
        let held = "SELECT count(*) FROM live WHERE state = 2 AND claimed_by LIKE '%:%'";
        assert_eq!(stage.place.number(held), 0, "no worker leaves a claim behind");
    }
}

/// Nothing that can be asked fails because of one row.
fn asked_about(stage: &Stage<'_>) {
    let queue = stage.queue();
    let mut filter = JobFilter::new();
    loop {
        let page = queue.jobs(filter.clone()).expect("a page");
        for job in &page.jobs {
            queue.journal(job.id.get(), None).expect("a journal");
        }
        let Some(next) = page.next else { break };
        filter = filter.after(next);
    }
    queue.stats().expect("counts");
    queue.recover_stale().expect("recovering");
    queue.cancel_all(JobFilter::new().status(JobStatus::Pending)).expect("cancelling");
    queue.requeue_all(JobFilter::new().status(JobStatus::Dead)).expect("requeueing");
    queue.cleanup(Cleanup::new().completed(Duration::ZERO).dead(Duration::ZERO)).expect("cleaning up");
}

/// By hand only: the row in `live` is what counts. Its end takes it away; the run's result goes to the journal, and the
/// finished row stays as it was.
pub(crate) fn an_id_in_both_tables_is_one_job_and_its_run_can_end(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run(super::effects::TABLE);
    let ends = [
        vec![Step::Note("twice".to_owned())],
        vec![Step::Permanent("twice".to_owned())],
        vec![Step::CompleteIn(super::probe::Finish::Commit)],
        vec![],
    ];
    let ids = stage.enqueue_many(Kind::Plain, ends.map(|steps| job("double").run(steps)));
    for id in &ids {
        stage.place.run(&FINISHED.replace("{id}", &id.to_string()));
    }
    let queue = stage.queue();
    let listed = |filter: JobFilter| {
        let page = queue.jobs(filter).expect("a page");
        page.jobs.iter().map(|job| (job.id.get(), job.status)).collect::<Vec<_>>()
    };
    let newest_first = |status| ids.iter().rev().map(|id| (*id, status)).collect::<Vec<_>>();
    assert_eq!(listed(JobFilter::new()), newest_first(JobStatus::Pending));
    assert_eq!(listed(JobFilter::new().status(JobStatus::Completed)), newest_first(JobStatus::Completed));
    assert_eq!(queue.job(ids[0]).expect("an answer").expect("it is there").status, JobStatus::Pending);
    assert_eq!(queue.cancel(ids[3]).expect("an answer"), CancelOutcome::Cancelled);
    assert_eq!(stage.place.events(ids[3]), ["completed", "cancelled"]);
    let worker = stage.work(&WorkerSpec::default());
    stage.place.wait_all_finished();
    assert_eq!(listed(JobFilter::new()), newest_first(JobStatus::Completed));
    for (id, event) in ids.iter().zip(["completed", "dead", "completed"]) {
        let entries = stage.place.journal(*id);
        let entry = entries.iter().find(|entry| entry.run == 1).expect("an entry of the run");
        assert_eq!(entry.event, event);
        assert_eq!(stage.place.job(*id).claimed_by.as_deref(), Some("somebody"), "what was there first stays");
    }
    let report = worker.stop();
    assert_eq!((report.settled, report.late), (3, 0), "{report:?}");
}

const NAME: &str = r#"'; DROP SCHEMA "{schema}" CASCADE; -- $1 \ % "#;

pub(crate) fn names_full_of_metacharacters_are_only_names(front: &dyn Front) {
    let mut stage = Stage::bare(front, super::place::url());
    // The name has its end, which no other test has.
    stage.place.schema = format!("{}{}", &NAME[..20], fresh_name("x"));
    let quoted = stage.place.schema.replace('"', "\"\"");
    stage.place.run(&format!("SET search_path = \"{quoted}\""));
    front.migrate(&stage.place.database()).expect("it is quoted wherever it stands");
    let queue = stage.queue();
    assert_eq!(Kind::Sharp.name(), NAME);
    let sharp = |tag: &str| job(tag).of(Kind::Sharp).keyed(NAME, Manner::Sum);
    let id = stage.enqueue(sharp(NAME));
    assert_eq!(stage.enqueue(sharp(NAME)), id, "merged");
    assert_eq!(queue.jobs(JobFilter::new().kind(NAME).dedup_key(NAME)).expect("a page").jobs.len(), 1);
    assert!(queue.pause_kind(NAME).expect("an answer"));
    assert_eq!(queue.paused_kinds().expect("an answer")[0].kind, NAME);
    assert!(queue.resume_kind(NAME).expect("an answer"));
    assert_eq!(queue.cancel(id).expect("an answer"), CancelOutcome::Cancelled);
    assert_eq!(queue.requeue(id).expect("an answer"), RequeueOutcome::Requeued);
    let spec = WorkerSpec { claimed_by: Some(NAME.to_owned()), ..WorkerSpec::of(&[Kind::Sharp]) };
    let worker = stage.work(&WorkerSpec { poll_max: WorkerSpec::without_polls().poll_max, ..spec });
    let row = stage.place.wait_status(id, "completed");
    assert!(row.claimed_by.is_some_and(|name| name.starts_with(NAME.trim_end())));
    let note = stage.enqueue(job(NAME).of(Kind::Sharp).run([Step::Attach(NAME.into()), Step::Note(NAME.into())]));
    assert_eq!(stage.place.wait_status(note, "completed").note.as_deref(), Some(NAME));
    assert_eq!(queue.stats().expect("counts").kinds[NAME].finished_last_minute, 2);
    worker.stop();
    stage.place.run(&format!("DROP SCHEMA \"{quoted}\" CASCADE"));
}

const RIGHTS: &str = include_str!("../../docs/security.md");

/// Makes a role that may log in and has been granted what the page says of one of its names.
fn role(stage: &Stage<'_>, part: &str) -> String {
    let named = format!("TO {part};");
    let block =
        RIGHTS.split("```").find(|block| block.starts_with("sql\n") && block.contains(&named)).expect("a block");
    let name = format!("{}_{part}", stage.place.schema);
    let grants = block.trim_start_matches("sql\n").replace("venturi", &stage.place.schema);
    let grants = grants.replace(&named, &format!("TO {name};"));
    stage.place.run(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'; {grants}"));
    name
}

fn database(stage: &Stage<'_>, role: &str) -> venturi::Database {
    let mut config: tokio_postgres::Config = stage.place.url.parse().expect("a proper DSN");
    config.user(role).password("secret").application_name(&stage.place.name);
    venturi::Database::from_config(config).and_then(|it| it.schema(&stage.place.schema)).expect("a database")
}

/// The roles of `docs/security.md`, with the front-ends themselves; `statement::rights` has each statement.
pub(crate) fn workers_and_queues_need_no_more_than_the_documented_rights(front: &dyn Front) {
    let stage = Stage::new(front);
    let parts = ["producer", "worker", "reader"];
    let roles = parts.map(|part| role(&stage, part));
    let [producer, worker, reader] = roles.each_ref().map(|role| database(&stage, role));
    let [producer, reader] = [producer, reader].map(|it| front.connect(&it).expect("connecting"));
    let enqueue = |job| producer.enqueue(job).expect("stored").id.get();
    let key = |amount| job("keyed").keyed("k", Manner::SumAndCarry).amount(amount).with_filler(2_000);
    let keyed = enqueue(key(1));
    assert_eq!(enqueue(key(2)), keyed);
    let many =
        producer.enqueue_many(Kind::Plain, (0..2_001).map(|nth| job(nth.to_string())).collect()).expect("copied");
    let dropped: Vec<i64> = many.iter().map(|it| it.id.get()).collect();
    assert_eq!(producer.cancel(dropped[0]).expect("an answer"), CancelOutcome::Cancelled);
    assert_eq!(producer.requeue(dropped[0]).expect("an answer"), RequeueOutcome::Requeued);
    let cancelled = producer.cancel_all(JobFilter::new().kind("plain").created_since(std::time::UNIX_EPOCH));
    cancelled.expect("cancelling by filter");
    producer.recover_stale().expect("recovering");
    let failing = enqueue(job("failing").failing(1));
    let spec =
        WorkerSpec { backoff: Some((Duration::from_millis(10), Duration::from_millis(10))), ..WorkerSpec::default() };
    let working = stage.work_on(&WorkerSpec { retain_cancelled: Some(Duration::from_secs(3_600)), ..spec }, worker);
    let steps = [Step::Checkpoint, Step::Recall(3), Step::Attach("a".into())];
    let asking = enqueue(job("asking").run(steps));
    for id in [failing, asking] {
        stage.place.wait_status(id, "completed");
    }
    let held = enqueue(job("held").run([Step::WaitForSignal, Step::Fail("no".into())]));
    stage.wait_start("held", 1);
    assert_eq!(producer.cancel(held).expect("an answer"), CancelOutcome::Requested);
    stage.place.wait_status(held, "cancelled");
    assert_eq!(working.stop().late, 0);
    assert!(!reader.jobs(JobFilter::new()).expect("a page").jobs.is_empty());
    assert!(reader.job(failing).expect("an answer").is_some());
    assert_eq!(reader.journal(failing, None).expect("a page").entries.len(), 2);
    reader.stats().expect("counts");
    reader.paused_kinds().expect("an answer");
    assert_eq!(reader.cancel(failing).expect_err("it may only read").kind(), venturi::ErrorKind::Permission);
    drop((producer, reader));
    for role in roles {
        stage.place.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    }
}
