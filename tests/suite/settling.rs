//! What each result of a run does, and that no content keeps a result from being stored.

use std::time::Duration;

use super::front::{Front, WorkerSpec};
use super::lab::End;
use super::probe::{Kind, Step, job};
use super::stage::{Stage, gaps};

const MS: Duration = Duration::from_millis(1);

fn fail() -> Vec<Step> {
    vec![Step::Fail("no luck".to_owned())]
}

pub(crate) fn a_failing_job_waits_longer_each_time_and_dies_at_the_backstop(front: &dyn Front) {
    let stage = Stage::new(front);
    let backoff = Some((200 * MS, 10_000 * MS));
    stage.work(&WorkerSpec { backoff, backstop: Some(Some(5)), ..WorkerSpec::default() });
    let (id, row) = stage.finish(job("unlucky").run([Step::FailDeep]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("dead", 5, 5));
    let waits = gaps(&stage.look(|book| book.of("unlucky")));
    // The first two failures are free, then the base is multiplied by 1 and 2.
    assert!(waits[2] >= 200 * MS && waits[3] >= 400 * MS, "{waits:?}");
    let journal = stage.place.journal(id);
    let events: Vec<&str> = journal.iter().map(|entry| entry.event.as_str()).collect();
    assert_eq!(events, ["retried", "retried", "retried", "retried", "dead"]);
    assert!(journal.iter().all(|entry| entry.note.as_deref() == Some("outer: middle: innermost")), "{journal:#?}");
}

pub(crate) fn a_waiting_retry_shows_when_it_is_due(front: &dyn Front) {
    let stage = Stage::new(front);
    let backoff = Some((Duration::from_secs(600), Duration::from_secs(600)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::default() });
    let id = stage.enqueue(job("patient").run(fail()));
    let row = stage.place.wait_job(id, "failed for the third time", |row| row.failure_count == 3);
    assert_eq!((row.status.as_str(), row.run_count, row.claimed_by), ("pending", 3, None));
    assert!((500.0..=600.0).contains(&row.due_in), "{}", row.due_in);
}

pub(crate) fn a_kind_may_have_a_backoff_of_its_own(front: &dyn Front) {
    let stage = Stage::new(front);
    let backoff = Some((Duration::from_secs(600), Duration::from_secs(600)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::of(&[Kind::Steady]) });
    let (_, row) = stage.finish(job("steady").of(Kind::Steady).failing(3));
    assert_eq!((row.status.as_str(), row.run_count), ("completed", 4));
    let waits = gaps(&stage.look(|book| book.of("steady")));
    assert!(waits[2] >= 700 * MS, "{waits:?}");
}

pub(crate) fn without_a_backstop_a_job_never_dies_of_its_failures(front: &dyn Front) {
    let stage = Stage::new(front);
    let backoff = Some((MS, MS));
    stage.work(&WorkerSpec { backoff, backstop: Some(None), ..WorkerSpec::default() });
    let (_, row) = stage.finish(job("tough").failing(25));
    assert_eq!((row.status.as_str(), row.failure_count), ("completed", 25));
}

pub(crate) fn the_default_backstop_is_twenty_failures(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { backoff: Some((MS, MS)), ..WorkerSpec::default() });
    let (_, row) = stage.finish(job("weak").failing(25));
    assert_eq!((row.status.as_str(), row.failure_count, row.run_count), ("dead", 20, 20));
}

pub(crate) fn a_permanent_error_is_dead_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let (id, row) =
        stage.finish(job("hopeless").run([Step::Attach("last words".to_owned()), Step::Permanent("never".to_owned())]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("dead", 1, 1));
    assert_eq!((row.note.as_deref(), row.attachment.as_deref()), (Some("never"), Some("\"last words\"")));
    assert_eq!(stage.place.events(id), ["dead"]);
}

pub(crate) fn a_paused_job_goes_on_in_its_time_with_what_it_carried(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let pause = [Step::Add(3), Step::Attach("so far".to_owned()), Step::Pause(400 * MS)];
    let (id, row) = stage.finish(job("paused").run(pause.clone()).run(pause).run([Step::Complete]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 3, 0));
    let runs = stage.look(|book| book.of("paused"));
    assert_eq!(runs.iter().map(|run| run.carry).collect::<Vec<_>>(), [0, 3, 6]);
    assert!(gaps(&runs).iter().all(|gap| *gap >= 400 * MS), "{:?}", gaps(&runs));
    let journal = stage.place.journal(id);
    assert_eq!(stage.place.events(id), ["paused", "paused", "completed"]);
    assert_eq!((journal[0].note.as_deref(), journal[0].attachment.as_deref()), (Some("a pause"), Some("\"so far\"")));
}

pub(crate) fn a_pause_of_no_time_is_claimable_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { concurrency: Some(1), ..WorkerSpec::without_polls() });
    let (id, row) = stage.finish(job("short").run([Step::Pause(Duration::ZERO)]).run([Step::Complete]));
    assert_eq!((row.status.as_str(), row.run_count), ("completed", 2));
    assert_eq!(stage.place.events(id), ["paused", "completed"]);
}

pub(crate) fn a_failed_run_hands_its_carry_on_and_a_finished_one_does_not(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let script = job("carried").run([Step::Add(5), Step::Fail("again".to_owned())]).run([Step::Add(1), Step::Complete]);
    let (_, row) = stage.finish(script);
    let carries: Vec<i64> = stage.look(|book| book.of("carried").iter().map(|run| run.carry).collect());
    assert_eq!(carries, [0, 5]);
    assert_eq!(row.carry.as_deref(), Some("5"), "what the last run changed was never stored");
}

pub(crate) fn nul_in_text_attachment_and_carry_keeps_no_result_from_being_stored(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::of(&[Kind::Verbose]));
    let bad = "bad\0text".to_owned();
    let script = job("nul").of(Kind::Verbose).run([Step::Add(2), Step::Attach(bad.clone()), Step::Fail(bad.clone())]);
    let (id, row) = stage.finish(script.run([Step::Attach(bad.clone()), Step::Note(bad)]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1));
    assert_eq!(stage.look(|book| book.of("nul")[1].carry), 2, "the carry survived");
    for entry in stage.place.journal(id) {
        assert_eq!(entry.note.as_deref(), Some("bad\u{fffd}text"));
        assert_eq!(entry.attachment.as_deref(), Some(r#""bad\u0000text""#));
    }
}

pub(crate) fn a_megabyte_of_error_text_is_cut_and_says_so(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let (_, row) = stage.finish(job("long").run([Step::Rant(1_000_000)]));
    let note = row.note.expect("a note");
    assert!(row.status == "dead" && note.len() <= 8_000 && note.ends_with("bytes cut]"), "{} bytes", note.len());
}

pub(crate) fn a_carry_that_cannot_be_written_leaves_the_stored_one_and_says_so(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::of(&[Kind::NoWriting]));
    let pause = |amount| [Step::Add(amount), Step::Pause(MS)];
    let (id, row) = stage.finish(job("odd").of(Kind::NoWriting).run(pause(2)).run(pause(1)).run([Step::Complete]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 3, 0));
    assert_eq!(stage.look(|book| book.of("odd").iter().map(|run| run.carry).collect::<Vec<_>>()), [0, 2, 2]);
    let note = stage.place.journal(id)[1].note.clone().expect("a note");
    assert!(note.contains("carry") && note.contains("it is odd") && note.contains("a pause"), "{note}");
}

pub(crate) fn an_attachment_that_is_too_large_is_refused_and_the_earlier_one_stays(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let (_, row) = stage.finish(job("attached").run([Step::Attach("small".to_owned()), Step::AttachTooMuch]));
    assert_eq!((row.status.as_str(), row.attachment.as_deref()), ("completed", Some("\"small\"")));
}

fn insert_undecodable(stage: &Stage<'_>) -> i64 {
    stage.place.insert(r#"INSERT INTO live (kind, payload) VALUES ('plain', '{"of": "another version"}') RETURNING id"#)
}

pub(crate) fn an_undecodable_job_waits_as_long_as_it_may_and_bothers_no_other(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = insert_undecodable(&stage);
    let backoff = Some((MS, Duration::from_secs(300)));
    stage.work(&WorkerSpec { backoff, ..WorkerSpec::serial() });
    stage.assert_works("another");
    let row = stage.place.wait_job(id, "retried", |row| row.failure_count == 1);
    assert_eq!((row.status.as_str(), row.run_count), ("pending", 1));
    assert!((250.0..=300.0).contains(&row.due_in), "{}", row.due_in);
    assert_eq!(row.payload.as_deref(), Some(r#"{"of": "another version"}"#));
    let entry = &stage.place.journal(id)[0];
    assert_eq!(entry.event, "retried");
    assert!(entry.note.as_ref().is_some_and(|note| note.starts_with("cannot decode the payload")), "{entry:?}");
}

pub(crate) fn an_undecodable_job_is_dead_at_once_if_the_policy_says_so(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = insert_undecodable(&stage);
    stage.work(&WorkerSpec { undecodable_is_final: true, ..WorkerSpec::default() });
    let row = stage.place.wait_status(id, "dead");
    assert_eq!((row.run_count, row.failure_count), (1, 1));
    assert_eq!(row.payload.as_deref(), Some(r#"{"of": "another version"}"#));
}

pub(crate) fn an_undecodable_job_dies_at_the_backstop(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = insert_undecodable(&stage);
    stage.work(&WorkerSpec { backoff: Some((MS, 20 * MS)), backstop: Some(Some(3)), ..WorkerSpec::default() });
    let row = stage.place.wait_status(id, "dead");
    assert_eq!((row.run_count, row.failure_count), (3, 3));
    assert_eq!(stage.place.events(id), ["retried", "retried", "dead"]);
}

pub(crate) fn an_undecodable_carry_is_kept_as_it_was(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("carried"));
    stage.place.run(&format!(r#"UPDATE live SET carry = '{{"of": "another version"}}' WHERE id = {id}"#));
    stage.work(&WorkerSpec { undecodable_is_final: true, ..WorkerSpec::default() });
    let row = stage.place.wait_status(id, "dead");
    assert_eq!(row.carry.as_deref(), Some(r#"{"of": "another version"}"#));
    assert!(row.note.as_ref().is_some_and(|note| note.starts_with("cannot decode the carry")), "{row:?}");
    assert_eq!(stage.starts("carried"), 0);
}

/// Another worker has the job by now: whatever this run returns, the row is not its own any more.
pub(crate) fn a_result_is_refused_once_another_has_claimed_the_job(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::default());
    let id = stage.enqueue(job("taken").run([Step::Wait("end".to_owned()), Step::Note("mine".to_owned())]));
    stage.wait_start("taken", 1);
    stage.place.give_away(id);
    stage.open("end");
    stage.assert_works("after it");
    let report = worker.stop();
    assert_eq!((report.settled, report.late), (1, 1), "{report:?}");
    let row = stage.place.job(id);
    assert_eq!((row.status.as_str(), row.claimed_by.as_deref(), row.note), ("claimed", Some("another"), None));
    assert!(stage.place.events(id).is_empty());
}

/// A future is dropped at its time-out; a thread works on, and what it returns is too late.
pub(crate) fn a_run_that_takes_too_long_is_a_failure(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { backoff: Some((100 * MS, 100 * MS)), ..WorkerSpec::of(&[Kind::Brisk]) });
    let id = stage
        .enqueue(job("slow").of(Kind::Brisk).run([Step::Add(1), Step::Wait("late".to_owned())]).run([Step::Complete]));
    stage.place.wait_job(id, "timed out", |row| row.failure_count == 1);
    let entry = &stage.place.journal(id)[0];
    assert_eq!((entry.run, entry.event.as_str(), entry.note.as_deref()), (1, "retried", Some("timed out after 300ms")));
    if stage.on_threads() {
        // The job isn't run again here while its first run goes on.
        assert_eq!(stage.look(|book| book.of("slow").iter().map(|run| run.end).collect::<Vec<_>>()), [None]);
        stage.open("late");
    }
    stage.place.wait_status(id, "completed");
    let runs = stage.look(|book| book.of("slow"));
    let first_end = if stage.on_threads() { End::Returned } else { End::Unwound };
    assert_eq!((runs[0].end, runs[1].carry), (Some(first_end), 0));
    let report = worker.stop();
    assert_eq!((report.settled, report.timed_out, report.late), (1, 1, u64::from(stage.on_threads())), "{report:?}");
}

/// The worker's time-out holds for kinds without one.
pub(crate) fn a_worker_may_limit_all_its_runs(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { timeout: Some(200 * MS), backstop: Some(Some(1)), ..WorkerSpec::default() };
    stage.work(&spec);
    let id = stage.enqueue(job("slow").waiting("late"));
    stage.place.wait_status(id, "dead");
    assert_eq!(stage.place.events(id), ["dead"]);
    stage.open("late");
    stage.assert_works("after it");
}
