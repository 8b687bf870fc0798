//! The claim-and-dispatch loop, claiming, concurrency, caps and identity.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use venturi::Priority;

use super::front::{Front, WorkerSpec};
use super::lab::Book;
use super::place::eventually;
use super::probe::{Kind, Step, job};
use super::stage::Stage;

pub(crate) fn a_job_runs_once_and_completes(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec::default());
    let (id, row) =
        stage.finish(job("once").run([Step::Attach("a file".to_owned()), Step::Note("all done".to_owned())]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 1, 0));
    assert_eq!((row.note.as_deref(), row.attachment.as_deref()), (Some("all done"), Some("\"a file\"")));
    assert_eq!(stage.place.events(id), ["completed"]);
    assert_eq!(worker.stop().settled, 1);
    assert_eq!(stage.starts("once"), 1);
}

pub(crate) fn a_context_tells_what_the_row_says(front: &dyn Front) {
    let stage = Stage::new(front);
    let before = SystemTime::now() - Duration::from_secs(1);
    let id = stage.enqueue(job("told").of(Kind::Other).with_priority(Priority::Low).failing(1));
    stage.work(&WorkerSpec::of(&[Kind::Other]));
    let (first, second) = (stage.wait_start("told", 1), stage.wait_start("told", 2));
    assert_eq!((first.job, first.kind, first.priority), (id, "other", Priority::Low));
    assert_eq!((first.run, first.failures), (1, 0));
    assert_eq!((second.run, second.failures), (2, 1));
    assert!(first.created_at >= before && first.created_at <= first.due_at, "{first:?}");
    assert_eq!(second.created_at, first.created_at);
    assert!(second.due_at >= first.due_at);
}

pub(crate) fn only_registered_kinds_are_claimed(front: &dyn Front) {
    let stage = Stage::new(front);
    let foreign = stage.enqueue(job("foreign").of(Kind::Other).with_priority(Priority::High));
    stage.work(&WorkerSpec::of(&[Kind::Plain, Kind::Third]));
    stage.finish(job("plain"));
    stage.finish(job("third").of(Kind::Third));
    let row = stage.place.job(foreign);
    assert_eq!((row.status.as_str(), row.run_count), ("pending", 0));
}

pub(crate) fn jobs_are_claimed_by_priority_then_age(front: &dyn Front) {
    let stage = Stage::new(front);
    let order = [Priority::Low, Priority::Normal, Priority::High, Priority::Normal, Priority::High, Priority::Low];
    for (nth, priority) in order.into_iter().enumerate() {
        let kind = if nth % 2 == 0 { Kind::Plain } else { Kind::Other };
        stage.enqueue(job(format!("{priority:?} {nth}")).of(kind).with_priority(priority));
    }
    let strict = WorkerSpec { priority_ratio: Some(None), ..WorkerSpec::of(&[Kind::Plain, Kind::Other]) };
    stage.work(&WorkerSpec { concurrency: Some(1), ..strict });
    stage.place.wait_all_finished();
    assert_eq!(stage.order(), ["High 2", "High 4", "Normal 1", "Normal 3", "Low 0", "Low 5"]);
}

pub(crate) fn a_job_without_a_priority_is_normal(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("usual"));
    assert_eq!(stage.place.job(id).priority, 1);
}

pub(crate) fn a_worker_with_one_slot_is_strictly_serial(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..20).map(|nth| job(format!("{nth:02}"))));
    stage.work(&WorkerSpec::serial());
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.peak), 1);
    let order = stage.order();
    assert!(order.is_sorted() && order.len() == 20, "{order:?}");
}

pub(crate) fn a_worker_fills_its_slots_and_claims_no_more(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..5).map(|nth| job(format!("{nth}")).waiting(&format!("gate {nth}"))));
    stage.work(&WorkerSpec { concurrency: Some(3), ..WorkerSpec::without_polls() });
    stage.wait_starts(3);
    assert_eq!(stage.place.number("SELECT count(*) FROM live WHERE state = 2"), 3);
    let first: BTreeSet<String> = stage.order().into_iter().collect();
    assert!(first.iter().eq(["0", "1", "2"]), "{first:?}");
    // A slot that becomes free is filled at once, whatever `poll_max` is.
    stage.open("gate 1");
    stage.wait_start("3", 1);
    assert_eq!(stage.place.number("SELECT count(*) FROM live WHERE state = 2"), 3);
    stage.open_all();
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.peak), 3);
}

pub(crate) fn claimed_rows_never_exceed_the_slots_and_each_of_them_runs(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..300).map(|nth| job(format!("{nth}"))));
    let (mut session, done) = (stage.place.session(), AtomicBool::new(false));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                let row = session.query_one("SELECT count(*) FROM live WHERE state = 2", &[]).expect("a count");
                most = most.max(row.get::<_, i64>(0));
            }
            most
        });
        stage.work(&WorkerSpec { concurrency: Some(5), ..WorkerSpec::default() });
        eventually("all run", || (stage.place.number("SELECT count(*) FROM live") == 0).then_some(()));
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().expect("the watcher") <= 5);
    });
    assert_eq!(stage.look(|book| (book.runs.len(), book.peak <= 5)), (300, true));
}

pub(crate) fn a_kind_at_its_cap_leaves_its_jobs_pending_and_the_slots_to_others(front: &dyn Front) {
    let stage = Stage::new(front);
    let tight = job("tight").of(Kind::Other).with_priority(Priority::High).waiting("tight");
    let held = stage.enqueue_many(Kind::Other, (0..4).map(|_| tight.clone()));
    let kinds = vec![(Kind::Other, Some(2)), (Kind::Plain, None)];
    stage.work(&WorkerSpec { kinds, ..WorkerSpec::without_polls() });
    stage.wait_start("tight", 2);
    let others: Vec<i64> = (0..6).map(|nth| stage.enqueue(job(format!("free {nth}")))).collect();
    others.iter().for_each(|id| drop(stage.place.wait_status(*id, "completed")));
    let statuses: Vec<String> = held.iter().map(|id| stage.place.job(*id).status).collect();
    assert_eq!(statuses, ["claimed", "claimed", "pending", "pending"]);
    stage.open("tight");
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.peaks["other"]), 2);
}

pub(crate) fn a_cap_holds_within_each_worker(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Other, (0..4).map(|_| job("tight").of(Kind::Other).waiting("tight")));
    // A cap of 0 counts as 1.
    let spec = WorkerSpec { kinds: vec![(Kind::Other, Some(0))], ..WorkerSpec::default() };
    stage.work(&spec);
    stage.work(&spec);
    stage.wait_start("tight", 2);
    assert_eq!(stage.place.number("SELECT count(*) FROM live WHERE state = 2"), 2);
    let claimants = "SELECT count(DISTINCT claimed_by) FROM live WHERE state = 2";
    assert_eq!(stage.place.number(claimants), 2);
    stage.open("tight");
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.peaks["other"]), 2);
}

pub(crate) fn two_workers_share_five_hundred_jobs_and_run_each_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { concurrency: Some(8), ..WorkerSpec::default() };
    let workers = [stage.work(&spec), stage.work(&spec)];
    stage.enqueue_many(Kind::Plain, (0..500).map(|nth| job(format!("{nth}"))));
    stage.place.wait_all_finished();
    let tags: BTreeSet<String> = stage.order().into_iter().collect();
    assert_eq!((tags.len(), stage.look(|book| book.runs.len())), (500, 500));
    let settled = workers.map(|worker| worker.stop().settled);
    assert_eq!(settled[0] + settled[1], 500, "{settled:?}");
}

pub(crate) fn run_counts_are_exact_and_the_journal_has_no_gap(front: &dyn Front) {
    let stage = Stage::new(front);
    let quick = Some((Duration::from_millis(10), Duration::from_millis(50)));
    let spec = WorkerSpec { concurrency: Some(8), backoff: quick, ..WorkerSpec::default() };
    let jobs = stage.enqueue_many(Kind::Plain, (0..60).map(|nth| job(format!("{nth}")).failing(nth % 3)));
    stage.work(&spec);
    stage.work(&spec);
    stage.place.wait_all_finished();
    for (nth, id) in jobs.into_iter().enumerate() {
        let (row, journal) = (stage.place.job(id), stage.place.journal(id));
        let failures = i32::try_from(nth % 3).expect("a small number");
        assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", failures + 1, failures));
        let found: Vec<(i32, &str)> = journal.iter().map(|entry| (entry.run, entry.event.as_str())).collect();
        let wanted = [(1, "retried"), (2, "retried"), (3, "retried")];
        let mut wanted = wanted[..nth % 3].to_vec();
        wanted.push((failures + 1, "completed"));
        assert_eq!(found, wanted, "job {id}");
        assert_eq!(stage.starts(&nth.to_string()), nth % 3 + 1);
    }
}

pub(crate) fn a_row_that_somebody_has_locked_keeps_nobody_waiting(front: &dyn Front) {
    let stage = Stage::new(front);
    let locked = stage.enqueue(job("locked"));
    let free = stage.enqueue(job("free"));
    let mut session = stage.place.session();
    let mut transaction = session.transaction().expect("a transaction");
    transaction.query("SELECT 1 FROM live WHERE id = $1 FOR UPDATE", &[&locked]).expect("a lock");
    stage.work(&WorkerSpec::without_polls());
    stage.place.wait_status(free, "completed");
    assert_eq!(stage.starts("locked"), 0);
    transaction.rollback().expect("a roll-back");
    // Nothing tells of it: what was seen but locked is looked at again within a second.
    stage.place.wait_status(locked, "completed");
}

pub(crate) fn a_claim_lasts_as_long_as_its_kind_asks_or_else_the_worker(front: &dyn Front) {
    let stage = Stage::new(front);
    let day = stage.enqueue(job("day").of(Kind::Day).waiting("end"));
    let usual = stage.enqueue(job("usual").waiting("end"));
    stage.work(&WorkerSpec::of(&[Kind::Day, Kind::Plain]));
    stage.wait_starts(2);
    let left = |id| stage.place.job(id).lease_left.expect("a claimed row has a lease");
    assert!((86_300.0..=86_400.0).contains(&left(day)), "{}", left(day));
    assert!((800.0..=900.0).contains(&left(usual)), "the default is a quarter of an hour, not {}", left(usual));
}

pub(crate) fn a_worker_signs_its_claims_with_host_process_and_a_suffix(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("signed").waiting("end"));
    stage.work(&WorkerSpec::default());
    stage.wait_start("signed", 1);
    let signature = stage.place.job(id).claimed_by.expect("a claimed row is signed");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host has a name");
    let rest = signature.strip_prefix(&format!("{}:{}:", host.trim(), std::process::id()));
    let is_suffix = |rest: &str| rest.len() == 8 && rest.chars().all(|letter| letter.is_ascii_hexdigit());
    assert!(rest.is_some_and(is_suffix), "{signature}");
    stage.open("end");
    stage.place.wait_status(id, "completed");
    assert_eq!(stage.place.journal(id)[0].claimed_by.as_deref(), Some(signature.as_str()));
}

pub(crate) fn a_worker_may_have_a_name_of_its_own(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { claimed_by: Some("mail on rack 3".to_owned()), ..WorkerSpec::serial() };
    let ids = stage.enqueue_many(Kind::Plain, (0..2).map(|_| job("signed").waiting("end")));
    stage.work(&spec);
    stage.work(&spec);
    stage.wait_start("signed", 2);
    let signed: Vec<String> = ids.iter().filter_map(|id| stage.place.job(*id).claimed_by).collect();
    assert!(signed.iter().all(|name| name.starts_with("mail on rack 3:")), "{signed:?}");
    assert_ne!(signed[0], signed[1], "the suffix tells two workers of one name apart");
}

pub(crate) fn the_default_concurrency_leaves_half_the_cores_alone(front: &dyn Front) {
    let stage = Stage::new(front);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let slots = (cores / 2).clamp(1, 8);
    stage.enqueue_many(Kind::Plain, (0..slots + 2).map(|nth| job(format!("{nth}")).waiting("end")));
    stage.work(&WorkerSpec { concurrency: None, ..WorkerSpec::default() });
    stage.wait_starts(slots);
    let claimed = stage.place.number("SELECT count(*) FROM live WHERE state = 2");
    assert_eq!(usize::try_from(claimed).expect("a count"), slots);
    stage.open("end");
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book: &Book| book.peak), slots);
}

pub(crate) fn a_large_payload_comes_back_whole(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec::default());
    let (id, row) = stage.finish(job("large").with_filler(200_000));
    assert_eq!(row.status, "completed");
    assert!(stage.place.job(id).payload.is_some_and(|payload| payload.len() > 200_000));
}
