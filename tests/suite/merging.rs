//! Jobs that stand for others: dedup keys, and what merging leaves.

use std::thread;
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use venturi::{Effect, Enqueued, ErrorKind, Priority};

use super::front::{Front, Job, Producer, WorkerSpec};
use super::place::{eventually, fresh_name};
use super::probe::{Kind, Manner, Step, job, meeting};
use super::stage::Stage;

/// Each time somebody gives up, another has been stored, or a time-out has passed.
const MOST_GIVE_UPS: usize = 300;

const HOUR: Duration = Duration::from_secs(3_600);

fn add(key: &str) -> Job {
    job("add").keyed(key, Manner::Sum)
}

/// Enqueues from many threads over a few queues, and returns how each job came to be.
fn all_at_once(
    stage: &Stage<'_>,
    queues: usize,
    callers: usize,
    jobs: impl Fn(usize) -> Vec<Job> + Sync,
) -> Vec<Effect> {
    let queues: Vec<_> = (0..queues).map(|_| stage.front.connect(&stage.place.database()).expect("a queue")).collect();
    let enqueue = |caller: usize| -> Vec<Effect> {
        let queue = &queues[caller % queues.len()];
        jobs(caller).into_iter().map(|job| patiently(&**queue, &job).effect).collect()
    };
    thread::scope(|scope| {
        let enqueue = &enqueue;
        let callers: Vec<_> = (0..callers).map(|caller| scope.spawn(move || enqueue(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    })
}

/// Where many want one key on a busy machine, some give up, and nothing of theirs is stored. They are as many as the
/// others let pass, so this is bounded by how often, and not by how long it takes.
fn patiently(queue: &dyn Producer, job: &Job) -> Enqueued {
    for _ in 0..MOST_GIVE_UPS {
        match queue.enqueue(job.clone()) {
            Ok(stored) => return stored,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("given up {MOST_GIVE_UPS} times")
}

fn count(effects: &[Effect], wanted: Effect) -> usize {
    effects.iter().filter(|effect| **effect == wanted).count()
}

fn merged_entries(stage: &Stage<'_>) -> i64 {
    stage.place.number("SELECT count(*) FROM journal_entries WHERE event = 'merged'")
}

fn sum_of(stage: &Stage<'_>, condition: &str) -> i64 {
    let amounts = "SELECT coalesce(sum((payload->'script'->>'amount')::int), 0)::bigint FROM jobs WHERE";
    stage.place.number(&format!("{amounts} {condition}"))
}

fn first_enqueues_leave_one_job(front: &dyn Front, queues: usize, callers: usize) {
    let stage = Stage::new(front);
    let effects = all_at_once(&stage, queues, callers, |_| vec![add("one")]);
    assert_eq!((count(&effects, Effect::Inserted), count(&effects, Effect::Merged)), (1, callers - 1));
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 1);
    assert_eq!(merged_entries(&stage), callers as i64 - 1);
    assert_eq!(sum_of(&stage, "status = 'pending'"), callers as i64);
}

pub(crate) fn twenty_first_enqueues_of_a_key_leave_one_job(front: &dyn Front) {
    first_enqueues_leave_one_job(front, 5, 20);
}

pub(crate) fn two_hundred_first_enqueues_of_a_key_leave_one_job(front: &dyn Front) {
    first_enqueues_leave_one_job(front, 2, 200);
}

pub(crate) fn each_way_of_merging_leaves_what_it_says(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    let first = stage.enqueue(job("first").keyed("k", Manner::Keep).delayed(HOUR).with_priority(Priority::Low));
    let row = || {
        let row = stage.place.job(first);
        let script: serde_json::Value = serde_json::from_str(row.payload.as_deref().unwrap()).unwrap();
        let (tag, amount) = (script["script"]["tag"].clone(), script["script"]["amount"].clone());
        (tag.as_str().unwrap().to_owned(), amount.as_i64().unwrap(), row.priority, row.due_in > 3_000.0)
    };
    let merge = |tag: &str, manner| {
        let stored = queue.enqueue(job(tag).keyed("k", manner).delayed(2 * HOUR)).expect("stored");
        (stored.id.get(), stored.effect)
    };
    assert_eq!(merge("kept", Manner::Keep), (first, Effect::Kept));
    assert_eq!(row(), ("first".into(), 1, 2, true));
    assert_eq!(merge("sum", Manner::Sum), (first, Effect::Merged));
    assert_eq!(row(), ("first".into(), 2, 1, true), "the more urgent priority");
    assert_eq!(merge("new", Manner::Replace), (first, Effect::Replaced));
    assert_eq!(row(), ("new".into(), 1, 1, true), "in the place of the first, and due when that was");
    let beside = merge("beside", Manner::Independent);
    assert!(beside.1 == Effect::Inserted && beside.0 != first);
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 2);
    let notes: Vec<_> =
        stage.place.journal(first).into_iter().map(|entry| (entry.run, entry.event, entry.note)).collect();
    let entry = |note: &str| (0, "merged".to_owned(), Some(note.to_owned()));
    assert_eq!(notes, ["kept", "merged", "replaced"].map(entry));
}

pub(crate) fn a_task_that_says_nothing_takes_the_place_of_its_like(front: &dyn Front) {
    let stage = Stage::new(front);
    let first = stage.enqueue(job("first").keyed("k", Manner::Unsaid).with_priority(Priority::High));
    let second = stage.queue().enqueue(job("second").keyed("k", Manner::Unsaid)).expect("stored");
    assert_eq!((second.id.get(), second.effect), (first, Effect::Replaced));
    assert_eq!(stage.place.job(first).priority, 1, "its own");
    stage.work(&WorkerSpec::default());
    stage.place.wait_status(first, "completed");
    assert_eq!(stage.order(), ["second"]);
}

pub(crate) fn merging_spares_what_a_job_has_done_and_replacing_forgives_it(front: &dyn Front) {
    let stage = Stage::new(front);
    let fails = || job("it").run([Step::Add(5), Step::Fail("no".into())]);
    let id = stage.enqueue(fails().keyed("k", Manner::Keep));
    let worker = stage.work(&WorkerSpec { backoff: Some((HOUR, HOUR)), ..WorkerSpec::default() });
    stage.place.wait_job(id, "failed often enough to wait", |job| job.failure_count == 3);
    worker.stop();
    let state = || {
        let row = stage.place.job(id);
        (row.run_count, row.failure_count, row.carry)
    };
    let merge = |manner| stage.enqueue(fails().keyed("k", manner).delayed(HOUR));
    assert_eq!(merge(Manner::Sum), id);
    assert_eq!(state(), (3, 3, Some("15".into())));
    assert_eq!(merge(Manner::SumAndCarry), id);
    assert_eq!(state(), (3, 3, Some("115".into())));
    assert_eq!(merge(Manner::Replace), id);
    assert_eq!(state(), (3, 0, None));
    let events = stage.place.events(id);
    assert_eq!(events, ["retried", "retried", "retried", "merged", "merged", "merged"]);
}

pub(crate) fn a_panic_in_merge_is_its_callers_error_and_nobody_elses(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue(add("k"));
    let queue = stage.queue();
    let outcomes: Vec<Result<Enqueued, ErrorKind>> = thread::scope(|scope| {
        let call = |nth: usize| {
            let manner = if nth % 3 == 0 { Manner::Panic } else { Manner::Sum };
            let enqueue = move || queue.enqueue(job("add").keyed("k", manner)).map_err(|error| error.kind());
            scope.spawn(enqueue)
        };
        let calls: Vec<_> = (0..12).map(call).collect();
        calls.into_iter().map(|call| call.join().expect("no panic gets out")).collect()
    });
    assert_eq!(outcomes.iter().filter(|it| **it == Err(ErrorKind::Merge)).count(), 4);
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 8);
    assert_eq!((sum_of(&stage, "true"), merged_entries(&stage)), (9, 8));
    let error = queue.enqueue(job("add").keyed("k", Manner::Panic)).expect_err("it panics");
    assert!(error.to_string().contains("no way to merge"), "{error}");
}

pub(crate) fn a_pending_job_that_cannot_be_read_is_left_alone_and_blocks_nobody(front: &dyn Front) {
    let stage = Stage::new(front);
    let odd = stage.place.insert("INSERT INTO live (kind, payload, dedup_key) VALUES ('plain', '7', 'k') RETURNING id");
    let first = stage.queue().enqueue(add("k")).expect("stored");
    assert!(first.effect == Effect::Inserted && first.id.get() != odd);
    for _ in 0..3 {
        let next = stage.queue().enqueue(add("k")).expect("stored");
        assert_eq!((next.id, next.effect), (first.id, Effect::Merged), "among themselves they merge");
    }
    assert_eq!(stage.place.job(odd).payload.as_deref(), Some("7"));
    assert!(stage.place.events(odd).is_empty());
    stage.work(&WorkerSpec::default());
    stage.place.wait_status(first.id.get(), "completed");
}

pub(crate) fn an_immediate_job_that_is_merged_into_a_later_one_starts_at_once(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    for manner in [Manner::Sum, Manner::Replace] {
        let id = stage.enqueue(job("later").keyed("k", Manner::Keep).delayed(HOUR));
        assert_eq!(stage.enqueue(job("later").keyed("k", Manner::Keep)), id);
        assert!(stage.place.job(id).due_in > 3_000.0, "kept as it is");
        let begun = Instant::now();
        assert_eq!(stage.enqueue(job("now").keyed("k", manner)), id);
        stage.place.wait_status(id, "completed");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

pub(crate) fn a_merge_that_wakes_somebody_notifies_and_no_other(front: &dyn Front) {
    let stage = Stage::new(front);
    let mut session = stage.place.listener();
    let merge = |manner, delay: u64, priority| {
        stage.enqueue(job("it").keyed("k", manner).delayed(Duration::from_secs(delay)).with_priority(priority))
    };
    merge(Manner::Keep, 9_000, Priority::Normal);
    merge(Manner::Keep, 0, Priority::High);
    merge(Manner::Sum, 9_500, Priority::Low);
    merge(Manner::Sum, 5_000, Priority::Low);
    merge(Manner::Sum, 0, Priority::Normal);
    merge(Manner::Replace, 0, Priority::Normal);
    merge(Manner::Sum, 0, Priority::High);
    stage.enqueue(job("the end").of(Kind::Third));
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &String| !last.contains("third")) {
        let payload = eventually("a notification", || {
            let mut notifications = session.notifications();
            let next = notifications.timeout_iter(Duration::from_millis(50)).next().expect("the session lives");
            next.map(|it| it.payload().to_owned())
        });
        heard.push(payload);
    }
    let due: Vec<u64> =
        heard.iter().map(|it| it.rsplit(';').next().unwrap().parse::<u64>().unwrap().div_ceil(1_000_000)).collect();
    assert_eq!(due, [9, 5, 0, 0, 0], "{heard:?}");
}

pub(crate) fn a_running_job_and_one_that_has_ended_are_nobodys_like(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let running = stage.enqueue(job("running").waiting("gate").keyed("k", Manner::Keep));
    stage.wait_start("running", 1);
    let keyless = stage.queue().enqueue(job("keyless").delayed(HOUR)).expect("stored");
    let other = stage.queue().enqueue(job("other").of(Kind::Other).keyed("k", Manner::Keep)).expect("stored");
    let next =
        stage.queue().enqueue(job("next").waiting("gate").keyed("k", Manner::Keep).delayed(HOUR)).expect("stored");
    for it in [keyless, other, next] {
        assert_eq!(it.effect, Effect::Inserted);
    }
    assert_eq!(stage.enqueue(job("kept").keyed("k", Manner::Keep)), next.id.get());
    stage.open("gate");
    stage.place.wait_status(running, "completed");
    let dead = stage.enqueue(job("dead").run([Step::Permanent("no".into())]).keyed("d", Manner::Keep));
    stage.place.wait_status(dead, "dead");
    let after = stage.queue().enqueue(job("after").keyed("d", Manner::Keep)).expect("stored");
    assert_eq!(after.effect, Effect::Inserted);
}

pub(crate) fn the_oldest_pending_job_is_the_one_that_is_merged_into(front: &dyn Front) {
    let stage = Stage::new(front);
    let ids: Vec<i64> = (0..3).map(|_| stage.enqueue(job("it").keyed("k", Manner::Independent))).collect();
    assert_eq!(stage.enqueue(add("k")), ids[0]);
    stage.place.run(&format!("UPDATE live SET created_at = created_at - interval '1 hour' WHERE id = {}", ids[2]));
    assert_eq!(stage.enqueue(add("k")), ids[2]);
    stage.place.run(&format!(
        "UPDATE live SET state = 2, run_count = 1, claimed_by = 'another', claim_expires_at = now() + interval '1 hour' \
         WHERE id = {}",
        ids[2]
    ));
    assert_eq!(stage.enqueue(add("k")), ids[0]);
}

pub(crate) fn jobs_that_are_stored_together_merge_in_their_order(front: &dyn Front) {
    let stage = Stage::new(front);
    let jobs = (0..120).map(|nth| match nth % 3 {
        0 => job(format!("{nth}")),
        1 => add("k"),
        _ => job(format!("{nth}")).keyed(format!("{}", nth / 30), Manner::Replace),
    });
    let stored = stage.queue().enqueue_many(Kind::Plain, jobs.collect()).expect("stored");
    let effects: Vec<Effect> = stored.iter().map(|it| it.effect).collect();
    assert_eq!(count(&effects, Effect::Inserted), 40 + 1 + 4);
    assert_eq!((count(&effects, Effect::Merged), count(&effects, Effect::Replaced)), (39, 36));
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 45);
    assert_eq!(sum_of(&stage, "dedup_key = 'k'"), 40);
    let last = stage.place.rows("SELECT payload->'script'->>'tag' FROM live WHERE dedup_key = '3'", &[]);
    assert_eq!(last[0].get::<_, String>(0), "119");
    let of = |key: usize| stored.iter().enumerate().filter(move |(nth, _)| nth % 3 == 2 && nth / 30 == key);
    for key in 0..4 {
        let mut same = of(key).map(|(_, it)| it.id);
        let first = same.next().unwrap();
        assert!(same.all(|id| id == first), "each result names the job that stands for its task");
    }
}

pub(crate) fn many_keys_in_opposite_orders_end_in_one_job_for_each(front: &dyn Front) {
    let stage = Stage::new(front);
    let queues: Vec<_> = (0..4).map(|_| front.connect(&stage.place.database()).expect("a queue")).collect();
    let keys: Vec<String> = (0..60).map(|nth| format!("{nth}")).collect();
    thread::scope(|scope| {
        for (nth, queue) in queues.iter().enumerate() {
            let mut jobs: Vec<Job> = keys.iter().map(|key| add(key)).collect();
            if nth % 2 == 1 {
                jobs.reverse();
            }
            scope.spawn(move || {
                for _ in 0..3 {
                    let stored = queue.enqueue_many(Kind::Plain, jobs.clone()).expect("no deadlock");
                    assert_eq!(stored.len(), 60);
                }
            });
        }
    });
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 60);
    assert_eq!((sum_of(&stage, "true"), merged_entries(&stage)), (60 * 12, 60 * 11));
}

pub(crate) fn a_merge_while_the_job_runs_and_pauses_loses_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let name = fresh_name("meeting");
    let meet = meeting(&name);
    let pausing = job("it").run([Step::Add(50), Step::Pause(HOUR)]).run([Step::Complete]);
    let id = stage.enqueue(pausing.keyed("k", Manner::Keep));
    thread::scope(|scope| {
        let queue = stage.queue();
        let merge = scope.spawn(move || queue.enqueue(job("add").keyed("k", Manner::Meet(name))).expect("stored"));
        assert!(meet.begun.wait_timeout(super::PATIENCE), "the merge has begun");
        let worker = stage.work(&WorkerSpec::default());
        stage.place.wait_job(id, "paused", |job| job.run_count == 1 && job.status == "pending");
        worker.stop();
        meet.go_on.cancel();
        let stored = merge.join().expect("no panic");
        assert_eq!((stored.id.get(), stored.effect), (id, Effect::Merged));
    });
    let row = stage.place.job(id);
    assert_eq!(row.carry.as_deref(), Some("150"), "what the run has left, and a hundred more");
    assert!(row.due_in < 1.0, "it is due at once, as the new task is");
    assert_eq!(stage.place.events(id), ["paused", "merged"]);
    assert_eq!(sum_of(&stage, "true"), 2);
}

pub(crate) fn sixteen_producers_and_four_workers_count_exactly(front: &dyn Front) {
    let stage = Stage::new(front);
    (0..4).for_each(|_| drop(stage.work(&WorkerSpec::default())));
    let amount = |caller: usize, nth: usize| (caller * 7 + nth) as i64 % 5 + 1;
    let jobs = |caller: usize| {
        (0..25).map(|nth| add(["a", "b", "c"][(caller + nth) % 3]).amount(amount(caller, nth))).collect()
    };
    let effects = all_at_once(&stage, 8, 16, jobs);
    let total: i64 = (0..16).flat_map(|caller| (0..25).map(move |nth| amount(caller, nth))).sum();
    stage.place.wait_all_finished();
    assert_eq!(stage.place.number("SELECT count(*) FROM finished WHERE status <> 3"), 0);
    assert_eq!(sum_of(&stage, "status = 'completed'"), total);
    stage.wait("the handlers have seen it all", |book| {
        (book.runs.iter().map(|run| run.amount).sum::<i64>() == total).then_some(())
    });
    let (inserted, merged) = (count(&effects, Effect::Inserted), count(&effects, Effect::Merged));
    assert_eq!(inserted + merged, 16 * 25);
    assert_eq!(stage.place.number("SELECT count(*) FROM finished"), inserted as i64);
    assert_eq!(merged_entries(&stage), merged as i64);
}

pub(crate) fn a_payload_that_merging_makes_large_comes_back_whole(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("small").keyed("k", Manner::Keep).delayed(HOUR));
    for bytes in [50_000, 10, 70_000] {
        let stored =
            stage.enqueue(job(format!("{bytes}")).with_filler(bytes).keyed("k", Manner::Replace).delayed(HOUR));
        assert_eq!(stored, id);
        assert!(stage.place.job(id).payload.unwrap().len() > bytes);
        assert_eq!(stage.place.number("SELECT count(*) FROM payload"), i64::from(bytes > 1_000));
    }
    stage.work(&WorkerSpec::default());
    stage.enqueue(job("now").keyed("k", Manner::Sum));
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.order(), ["70000"]);
}

pub(crate) fn a_key_that_makes_no_sense_is_refused(front: &dyn Front) {
    let stage = Stage::new(front);
    for key in ["", "a\nb", "a\0", &"x".repeat(201)] {
        let error = stage.queue().enqueue(add(key)).expect_err("it is no key");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::DedupKey, false));
    }
    stage.enqueue(add(&"é".repeat(100)));
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 1);
}

pub(crate) fn a_key_that_another_transaction_has_keeps_only_its_own_callers_waiting(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue: &dyn Producer = stage.queue();
    let mut session = stage.place.session();
    let mut open = session.transaction().expect("a transaction");
    let payload = stage.enqueue(add("template").of(Kind::Third));
    let payload = stage.place.job(payload).payload.unwrap();
    open.query_one("SELECT enqueue('plain', $1::text::json, dedup_key => 'k')", &[&payload]).expect("enqueued");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| patiently(queue, &add("k")));
        for nth in 0..5 {
            queue.enqueue(job("plain")).expect("stored");
            queue.enqueue(add(&format!("{nth}"))).expect("stored");
        }
        assert!(!waiting.is_finished(), "the key is another's");
        open.commit().expect("committed");
        assert_eq!(waiting.join().expect("no panic").effect, Effect::Merged);
    });
    assert_eq!(sum_of(&stage, "dedup_key = 'k'"), 2);
}

pub(crate) fn what_sql_enqueues_is_merged_like_everything_else(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work_idle(&WorkerSpec::without_polls());
    let id = stage.enqueue(add("k").delayed(HOUR));
    let payload = stage.place.job(id).payload.unwrap();
    let enqueue =
        |more: &str| stage.place.rows(&format!("SELECT enqueue('plain', $1::text::json{more})"), &[&payload])[0].get(0);
    let same: i64 = enqueue(", delay => 3600, dedup_key => 'k'");
    assert_eq!(same, id);
    assert_eq!(stage.enqueue(add("k").delayed(HOUR)), id);
    assert_eq!(sum_of(&stage, "true"), 2);
    let now: i64 = enqueue(", dedup_key => 'k', on_duplicate => 'keep'");
    assert_eq!(now, id);
    let _: i64 = enqueue(", dedup_key => 'k'");
    stage.place.wait_status(id, "completed");
    let plain: i64 = enqueue("");
    stage.place.wait_status(plain, "completed");
    let merged = stage.place.events(id).iter().filter(|event| *event == "merged").count();
    assert_eq!(merged, 4);
}
