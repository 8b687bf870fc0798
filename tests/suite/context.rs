//! What a handler asks of its context while it runs: checkpoints, history, holds.

use std::time::Duration;

use super::front::{Front, Inside, Job, WorkerSpec};
use super::lab::End;
use super::place::{eventually, for_a_while};
use super::probe::{Blast, Kind, Manner, Step, job};
use super::stage::Stage;

const MS: Duration = Duration::from_millis(1);

fn gate(name: &str) -> Step {
    Step::Wait(name.to_owned())
}

pub(crate) fn a_checkpoint_outlives_a_panic(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let id = stage.enqueue(
        job("saved")
            .run([Step::Add(4), Step::Checkpoint, gate("look"), Step::Add(8), Step::Panic(Blast::Text)])
            .run([Step::Complete]),
    );
    stage.wait("the answer", |book| (book.of("saved").first()?.answers == ["stored"]).then_some(()));
    let row = stage.place.job(id);
    assert_eq!(
        (row.status.as_str(), row.carry.as_deref()),
        ("claimed", Some("4")),
        "it is stored while the run goes on"
    );
    stage.open("look");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (2, 1));
    assert_eq!(stage.look(|book| book.of("saved")[1].carry), 4);
}

pub(crate) fn a_checkpoint_is_refused_once_another_has_claimed_the_job(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let id = stage.enqueue(job("lost").run([gate("go"), Step::Add(4), Step::Checkpoint]));
    stage.wait_start("lost", 1);
    stage.place.give_away(id);
    stage.open("go");
    stage.wait("the answer", |book| (book.of("lost")[0].answers == ["ClaimLost"]).then_some(()));
    let row = stage.place.job(id);
    assert_eq!((row.claimed_by.as_deref(), row.carry), (Some("another"), None));
}

pub(crate) fn a_checkpoint_that_cannot_be_written_is_an_error_of_its_own(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::of(&[Kind::NoWriting]));
    let (_, row) = stage.finish(job("odd").of(Kind::NoWriting).run([Step::Add(1), Step::Checkpoint, Step::Complete]));
    assert_eq!((row.status.as_str(), row.carry), ("completed", None));
    assert_eq!(stage.look(|book| book.of("odd")[0].answers.clone()), ["Payload"]);
}

pub(crate) fn a_handler_can_read_what_became_of_earlier_runs(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let script = job("old").run([Step::Recall(9), Step::Fail("no luck".to_owned())]).run([Step::Pause(MS)]);
    stage.finish(script.run([Step::Recall(9), Step::Recall(1)]));
    let answers = stage.look(|book| book.of("old").into_iter().flat_map(|run| run.answers).collect::<Vec<_>>());
    assert_eq!(answers, ["", "1 Retried no luck, 2 Paused a pause", "2 Paused a pause"]);
}

/// A history is read when a handler asks, and no more of it than that. Counted by the server, so that it does not depend
/// on how busy the machine is.
pub(crate) fn a_long_history_does_not_slow_the_start(front: &dyn Front) {
    let stage = Stage::new(front);
    let old = stage.enqueue(job("old").run([Step::Recall(5)]));
    stage.place.run(&format!(
        "UPDATE live SET run_count = 50000 WHERE id = {old}; \
         INSERT INTO journal (job_id, run_no, event, claimed_by, note) \
         SELECT {old}, nth, 7, 'worker', 'a pause' FROM generate_series(1, 50000) nth; ANALYZE journal"
    ));
    let young = stage.enqueue_many(Kind::Plain, (0..5).map(|nth| job(format!("young {nth}"))));
    let worker = stage.work(&WorkerSpec::serial());
    for id in young.into_iter().chain([old]) {
        stage.place.wait_status(id, "completed");
    }
    let answers = stage.look(|book| book.of("old")[0].answers.clone());
    assert!(answers[0].starts_with("49996 Paused") && answers[0].ends_with("50000 Paused a pause"), "{answers:?}");
    // Backends report what they have read when they end.
    worker.stop();
    stage.place.wait_no_backends();
    let read = "SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'journal'::regclass) \
         + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = 'journal'::regclass)::int8";
    let read = stage.place.number(read);
    println!("of 50,000 entries {read} were read");
    assert!(read < 500, "{read}");
}

/// What a handler left behind may still be at work on the job, so the job is not given back before that has ended.
pub(crate) fn a_run_that_is_held_has_not_ended(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec {
        shutdown_timeout: Some(MS),
        abort_grace: Some(Duration::from_secs(60)),
        ..WorkerSpec::serial()
    });
    let held = stage.enqueue(job("held").run([Step::Hold("let go".to_owned()), Step::Note("done".to_owned())]));
    stage.wait("the handler returns", |book| (book.of("held").first()?.end == Some(End::Returned)).then_some(()));
    let next = stage.enqueue(job("next"));
    worker.tell_to_stop();
    for_a_while(300 * MS, "a worker that waits for nothing has ended by now");
    assert!(!worker.has_ended());
    assert_eq!([held, next].map(|id| stage.place.job(id).status), ["claimed", "pending"]);
    stage.open("let go");
    let report = worker.end_within(super::PATIENCE).expect("a report");
    assert_eq!((report.settled, report.left_claimed.len()), (1, 0), "{report:?}");
    let row = stage.place.job(held);
    assert_eq!((row.status.as_str(), row.note.as_deref()), ("completed", Some("done")));
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The tags of all jobs with the contexts that their runs had, once they are over.
fn traces(stage: &Stage<'_>, jobs: i64) -> Vec<(String, Option<String>)> {
    let over = || stage.place.number("SELECT count(*) FROM jobs WHERE status = 'completed'") == jobs;
    eventually("all are completed", || over().then_some(()));
    let mut seen: Vec<_> =
        stage.look(|book| book.runs.iter().map(|run| (run.tag.clone(), run.trace.clone())).collect());
    seen.sort();
    seen
}

pub(crate) fn each_run_gets_the_trace_context_that_its_job_was_given(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let twice = |job: Job| job.run([Step::Fail("once".to_owned())]).run([Step::Complete]);
    let id = stage.enqueue(twice(job("alone").traced(TRACE)));
    stage.enqueue_many(Kind::Plain, [job("of many").traced(TRACE), job("untraced")]);
    stage.enqueue(job("keyed").keyed("k", Manner::Keep).traced(TRACE));
    let expected = [
        ("alone", Some(TRACE)),
        ("alone", Some(TRACE)),
        ("keyed", Some(TRACE)),
        ("of many", Some(TRACE)),
        ("untraced", None),
    ];
    assert_eq!(traces(&stage, 4), expected.map(|(tag, trace)| (tag.to_owned(), trace.map(str::to_owned))));
    let found = stage.queue().job(id).expect("asked").expect("it is there");
    assert_eq!(found.trace.as_deref(), Some(TRACE));
    let other = format!("SELECT count(*) FROM jobs WHERE trace = '{TRACE}' AND payload::text LIKE '%{TRACE}%'");
    assert_eq!(stage.place.number(&other), 0, "it is no part of a payload");
}

pub(crate) fn a_job_in_a_transaction_has_its_own_trace_context_or_the_transactions(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let enqueue = |job: Job| Inside::Enqueue(job);
    let steps = vec![
        Inside::Sql("BEGIN; SET LOCAL venturi.trace = 'the transaction'"),
        enqueue(job("named")),
        enqueue(job("own").traced(TRACE)),
        enqueue(job("keyed").keyed("k", Manner::Keep)),
        enqueue(job("keyed, own").keyed("l", Manner::Keep).traced(TRACE)),
        Inside::EnqueueMany(Kind::Plain, vec![job("many")]),
        Inside::Sql("COMMIT"),
        enqueue(job("after")),
    ];
    let said = stage.queue().visit(&stage.place.url, &stage.place.schema, &stage.lab, steps);
    assert!(said.iter().all(Result::is_ok), "{said:?}");
    let expected = [
        ("after", None),
        ("keyed", Some("the transaction")),
        ("keyed, own", Some(TRACE)),
        ("many", Some("the transaction")),
        ("named", Some("the transaction")),
        ("own", Some(TRACE)),
    ];
    assert_eq!(traces(&stage, 6), expected.map(|(tag, trace)| (tag.to_owned(), trace.map(str::to_owned))));
}
