//! Looking at jobs, counting them, and deleting old ones.

use std::collections::BTreeSet;
use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, SystemTime};

use venturi::{Cleaned, Cleanup, Cursor, ErrorKind, JobFilter, JobStatus, JournalEvent, Priority};

use super::front::{Front, WorkerSpec};
use super::place::eventually;
use super::probe::{Kind, Step, job};
use super::stage::Stage;

pub(crate) fn a_job_can_be_looked_at_in_every_state(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    assert!(queue.job(1).expect("an answer").is_none());
    let id = stage.enqueue(
        job("seen")
            .with_priority(Priority::High)
            .with_filler(3_000)
            .run([
                Step::Add(4),
                Step::Attach("proof".to_owned()),
                Step::Wait("gate".to_owned()),
                Step::Fail("no".to_owned()),
            ])
            .run([Step::Attach("more".to_owned()), Step::Note("done".to_owned())]),
    );
    let look = || queue.job(id).expect("an answer").expect("it is there");
    let pending = look();
    assert_eq!((pending.id.get(), pending.kind.as_str(), pending.priority), (id, "plain", Priority::High));
    assert_eq!((pending.status, pending.run_count, pending.finished_at), (JobStatus::Pending, 0, None));
    let script = pending.payload::<serde_json::Value>().expect("the payload");
    assert_eq!(script["script"]["tag"], "seen");
    assert!(pending.payload::<u32>().is_err());
    stage.work(&WorkerSpec::default());
    stage.wait_start("seen", 1);
    let claimed = look();
    assert_eq!((claimed.status, claimed.run_count), (JobStatus::Claimed, 1));
    assert!(claimed.claimed_by.is_some() && claimed.lease_expires_at > Some(claimed.created_at));
    stage.open("gate");
    stage.place.wait_status(id, "completed");
    let completed = look();
    assert_eq!((completed.status, completed.outcome), (JobStatus::Completed, Some(JournalEvent::Completed)));
    assert_eq!((completed.run_count, completed.failure_count, completed.note.as_deref()), (2, 1, Some("done")));
    assert_eq!(completed.attachment::<String>().expect("text").as_deref(), Some("more"));
    assert_eq!(completed.carry_json(), Some("4"));
    assert!(completed.finished_at.is_some_and(|at| at >= completed.created_at));
    assert_eq!(completed.payload_json(), pending.payload_json());
    let journal = queue.journal(id, None).expect("an answer");
    let events: Vec<_> = journal.entries.iter().map(|entry| (entry.run_count, entry.event)).collect();
    assert_eq!(events, [(1, JournalEvent::Retried), (2, JournalEvent::Completed)]);
    assert_eq!(journal.entries[0].attachment::<String>().expect("text").as_deref(), Some("proof"));
    assert!(journal.next.is_none());
}

pub(crate) fn a_listing_goes_on_where_it_ended_whatever_happens_meanwhile(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    let ids = stage.enqueue_many(Kind::Plain, (0..250).map(|nth| job(format!("{nth}"))));
    // All of them at the same instant.
    stage.place.run("UPDATE live SET created_at = now()");
    let mut filter = JobFilter::new().limit(40);
    let mut seen = Vec::new();
    let worker = stage.work(&WorkerSpec { concurrency: Some(2), ..WorkerSpec::default() });
    for turn in 0.. {
        let page = queue.jobs(filter.clone()).expect("a page");
        seen.extend(page.jobs.iter().map(|job| job.id.get()));
        stage.enqueue(job(format!("new {turn}")));
        let Some(next) = page.next else { break };
        // As a web page would send it back.
        let cursor: Cursor = next.to_string().parse().expect("its own text");
        filter = filter.after(cursor);
        if turn == 3 {
            worker.tell_to_stop();
        }
    }
    let newest_first: Vec<i64> = ids.into_iter().rev().collect();
    assert_eq!(seen, newest_first, "while jobs were enqueued, claimed and completed");
}

pub(crate) fn a_listing_shows_what_fits(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    stage.work(&WorkerSpec { kinds: vec![(Kind::Plain, None)], ..WorkerSpec::default() });
    let dead = stage.enqueue(job("dead").run([Step::Permanent("broken".to_owned())]));
    let done = stage.enqueue(job("done"));
    stage.place.wait_status(dead, "dead");
    stage.place.wait_status(done, "completed");
    let waiting = stage.enqueue(job("waiting").of(Kind::Other));
    let list = |filter: JobFilter| {
        let page = queue.jobs(filter).expect("a page");
        page.jobs.iter().map(|job| job.id.get()).collect::<Vec<_>>()
    };
    assert_eq!(list(JobFilter::new()), [waiting, done, dead]);
    assert_eq!(list(JobFilter::new().limit(0)), [waiting], "a page has one job at least");
    assert_eq!(list(JobFilter::new().limit(u32::MAX)).len(), 3);
    assert_eq!(list(JobFilter::new().kind("plain")), [done, dead]);
    assert_eq!(list(JobFilter::new().status(JobStatus::Dead)), [dead]);
    assert_eq!(list(JobFilter::new().status(JobStatus::Dead).status(JobStatus::Pending)), [waiting, dead]);
    assert_eq!(list(JobFilter::new().kind("")), Vec::<i64>::new());
    assert_eq!(list(JobFilter::new().kind("a\nb")), Vec::<i64>::new());
    assert_eq!(list(JobFilter::new().created_until(SystemTime::UNIX_EPOCH)), Vec::<i64>::new());
    let bare = queue.jobs(JobFilter::new().without_content()).expect("a page");
    assert!(bare.jobs.iter().all(|job| job.payload_json().is_none()));
    let misused = queue.journal(done, bare.next.or_else(|| "jobs.5".parse().ok()));
    assert_eq!(misused.expect_err("a cursor of something else").kind(), ErrorKind::Config);
}

pub(crate) fn a_row_that_makes_no_sense_hides_no_other(front: &dyn Front) {
    let stage = Stage::new(front);
    let ids = stage.enqueue_many(Kind::Plain, (0..3).map(|nth| job(format!("{nth}"))));
    stage.place.run(&format!(
        "ALTER TABLE live DROP CONSTRAINT live_valid; UPDATE live SET priority = -5, failure_count = -1 WHERE id = {}",
        ids[1]
    ));
    let page = stage.queue().jobs(JobFilter::new()).expect("a page");
    assert_eq!(page.jobs.iter().map(|job| job.id.get()).collect::<Vec<_>>(), [ids[2], ids[0]]);
    assert_eq!(page.unreadable.iter().map(|id| id.get()).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(stage.queue().stats().expect("counts").total().ready, 3);
}

pub(crate) fn a_long_journal_comes_in_pages(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(job("long"));
    stage.place.run(&format!(
        "INSERT INTO journal (job_id, run_no, event, note) SELECT {id}, 0, 10, i::text FROM generate_series(1, 2500) i"
    ));
    stage.queue().cancel(id).expect("an answer");
    let mut after = None;
    let mut notes = Vec::new();
    loop {
        let page = stage.queue().journal(id, after).expect("a page");
        assert!(page.entries.len() <= 1_000);
        notes.extend(page.entries.into_iter().map(|entry| entry.note));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<_> = (1..=2_500).map(|nth: i32| Some(nth.to_string())).chain([None]).collect();
    assert_eq!(notes, wanted);
    assert!(stage.queue().journal(-1, None).expect("a page").entries.is_empty());
}

pub(crate) fn counts_tell_what_there_is_of_each_kind(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    assert!(queue.stats().expect("counts").kinds.is_empty());
    stage.work(&WorkerSpec::default());
    let dead = stage.enqueue(job("dead").run([Step::Permanent("no".to_owned())]));
    stage.place.wait_status(dead, "dead");
    stage.enqueue(job("running").waiting("gate"));
    stage.wait_start("running", 1);
    stage.enqueue(job("later").delayed(Duration::from_secs(60)));
    stage.enqueue_many(Kind::Other, (0..4).map(|nth| job(format!("{nth}")).of(Kind::Other)));
    queue.pause_kind("third").expect("an answer");
    let stats = queue.stats().expect("counts");
    let plain = &stats.kinds["plain"];
    assert_eq!((plain.ready, plain.scheduled, plain.claimed, plain.dead), (0, 1, 1, 1));
    assert_eq!((plain.finished_last_minute, plain.oldest_ready, plain.paused), (1, None, false));
    assert_eq!(stats.kinds["other"].ready, 4);
    assert!(stats.kinds["other"].oldest_ready < Some(Duration::from_secs(60)));
    assert!(stats.kinds["third"].paused);
    let total = stats.total();
    assert_eq!((total.ready, total.scheduled, total.claimed, total.dead), (4, 1, 1, 1));
}

pub(crate) fn old_jobs_are_deleted_by_status_and_age(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    stage.enqueue_many(Kind::Plain, (0..1_200).map(|nth| job(format!("{nth}")).with_filler(2_000)));
    queue.cancel_all(JobFilter::new()).expect("done");
    let kept = stage.enqueue(job("kept"));
    queue.cancel(kept).expect("an answer");
    stage.place.run(&format!("UPDATE finished SET finished_at = now() - interval '1 hour' WHERE id <> {kept}"));
    let minute = Duration::from_secs(60);
    assert_eq!(queue.cleanup(Cleanup::new()).expect("done").total(), 0, "nothing is named");
    let other = Cleanup::new().completed(Duration::ZERO).dead(Duration::ZERO);
    assert_eq!(queue.cleanup(other).expect("done").total(), 0);
    assert_eq!(queue.cleanup(Cleanup::new().cancelled(Duration::MAX)).expect("done").total(), 0);
    let old = Cleanup::new().cancelled(minute).dead(minute);
    let count = queue.cleanup_count(old).expect("an answer");
    assert_eq!((count.cancelled, count.total()), (1_200, 1_200));
    let enough = Box::new(|done: Cleaned| if done.total() >= 1_000 { Break(()) } else { Continue(()) });
    assert_eq!(queue.cleanup_with(old, enough).expect("done").total(), 1_000, "in batches of 500");
    assert_eq!(queue.cleanup(Cleanup::new().cancelled(minute)).expect("done").cancelled, 200);
    assert_eq!(stage.place.job(kept).status, "cancelled");
    assert_eq!(stage.place.number("SELECT count(*) FROM payload"), 0);
}

pub(crate) fn a_worker_may_keep_no_completed_jobs(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { discard_completed: true, backstop: Some(Some(1)), ..WorkerSpec::default() });
    let gone = stage.enqueue(job("gone").with_filler(2_000).run([Step::Pause(Duration::ZERO)]).run([Step::Complete]));
    let dead = stage.enqueue(job("dead").run([Step::Fail("no".to_owned())]));
    stage.place.wait_all_finished();
    assert!(stage.queue().job(gone).expect("an answer").is_none());
    assert!(stage.queue().journal(gone, None).expect("an answer").entries.is_empty());
    assert_eq!(stage.place.job(dead).status, "dead", "only success leaves nothing");
    assert_eq!(stage.place.number("SELECT count(*) FROM payload"), 0);
}

pub(crate) fn a_worker_may_delete_old_jobs_by_itself(front: &dyn Front) {
    let stage = Stage::new(front);
    let ids = stage.enqueue_many(Kind::Plain, (0..600).map(|nth| job(format!("{nth}"))));
    stage.queue().cancel_all(JobFilter::new()).expect("done");
    stage.place.run("UPDATE finished SET finished_at = now() - interval '2 hours'");
    let young = stage.enqueue(job("young"));
    stage.queue().cancel(young).expect("an answer");
    stage.work(&WorkerSpec { retain_cancelled: Some(Duration::from_secs(3_600)), ..WorkerSpec::default() });
    // A worker looks for the first time after some four to eleven seconds.
    let left = || {
        let rows = stage.place.rows("SELECT id FROM finished", &[]);
        rows.iter().map(|row| row.get::<_, i64>(0)).collect::<BTreeSet<_>>()
    };
    assert_eq!(left().len(), ids.len() + 1);
    eventually("the old ones are gone", || (left().len() == 1).then_some(()));
    assert!(left().contains(&young));
    stage.assert_works("another");
}
