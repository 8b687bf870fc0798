//! Listing, journals and counts: what they return, and that they read no more than they must.

use std::time::{Duration, SystemTime};

use super::*;

fn found(db: &mut Db, find: Find) -> FoundJobs {
    match db.inquire(Inquiry::Find(find)) {
        Finding::Jobs(found) => found,
        other => panic!("{other:?}"),
    }
}

fn numbers(found: &FoundJobs) -> Vec<i64> {
    found.jobs.iter().map(|job| job.id.get()).collect()
}

fn all(db: &mut Db, filter: JobFilter) -> Vec<i64> {
    let statuses = filter.statuses_among(&JobStatus::ALL);
    numbers(&found(db, find(filter, &statuses)))
}

fn stats(db: &mut Db) -> crate::Stats {
    match db.inquire(Inquiry::Stats) {
        Finding::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_filter_finds_what_fits_in_either_table_newest_first() {
    let mut db = Db::new();
    let completed = db.claimed_one(ME);
    db.settle_one(ME, bare(completed, Ending::Completed));
    let dead = db.claimed_one(ME);
    db.settle_one(ME, bare(dead, Ending::Dead));
    let ids = db.enqueue(vec![job("b"), NewJob { dedup_key: Some("k".into()), ..job("a") }]);
    let (plain, keyed) = (ids[0], ids[1]);
    let claimed = db.claim_one(ME, plain).job;
    db.run(&format!(
        "UPDATE {{schema}}.live SET state = 0, claimed_by = NULL, claim_expires_at = NULL WHERE id = {keyed}"
    ));
    assert_eq!(all(&mut db, JobFilter::new()), [keyed, plain, dead.job, completed.job]);
    assert_eq!(all(&mut db, JobFilter::new().kind("b")), [plain]);
    assert_eq!(all(&mut db, JobFilter::new().dedup_key("k")), [keyed]);
    assert_eq!(all(&mut db, JobFilter::new().status(JobStatus::Pending)), [keyed]);
    assert_eq!(all(&mut db, JobFilter::new().status(JobStatus::Claimed)), [claimed]);
    assert_eq!(all(&mut db, JobFilter::new().status(JobStatus::Dead)), [dead.job]);
    let ended = JobFilter::new().status(JobStatus::Completed).status(JobStatus::Dead);
    assert_eq!(all(&mut db, ended), [dead.job, completed.job]);
    assert!(all(&mut db, JobFilter::new().status(JobStatus::Cancelled)).is_empty());
    let hour = Duration::from_secs(3_600);
    let now: SystemTime = db.value("SELECT now()");
    assert_eq!(all(&mut db, JobFilter::new().created_since(now - hour)).len(), 4);
    assert!(all(&mut db, JobFilter::new().created_until(now - hour)).is_empty());
    assert_eq!(all(&mut db, JobFilter::new().finished_since(now - hour)).len(), 2, "what has not ended does not fit");
    assert!(all(&mut db, JobFilter::new().finished_until(now - hour)).is_empty());
    let begin = SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(1_000_000_000_000)).unwrap();
    assert_eq!(all(&mut db, JobFilter::new().created_since(begin).created_until(now + hour)).len(), 4);
}

#[test]
fn an_instant_is_compared_to_the_microsecond() {
    let mut db = Db::new();
    let id = db.enqueue_one("a");
    for micros in [0_u32, 1, 333_333, 999_999] {
        db.run(&format!("UPDATE {{schema}}.live SET created_at = '2026-03-04 05:06:07.{micros:06}+00'"));
        let at: SystemTime = db.value("SELECT created_at FROM {schema}.live");
        assert_eq!(all(&mut db, JobFilter::new().created_since(at)), [id], "{micros}");
        assert!(all(&mut db, JobFilter::new().created_until(at)).is_empty(), "{micros}");
        let tick = Duration::from_micros(1);
        assert!(all(&mut db, JobFilter::new().created_since(at + tick)).is_empty(), "{micros}");
        assert_eq!(all(&mut db, JobFilter::new().created_until(at + tick)), [id], "{micros}");
    }
}

#[test]
fn content_comes_only_when_it_is_asked_for() {
    let mut db = Db::new();
    let large = format!("\"{}\"", "x".repeat(5_000));
    db.enqueue(vec![NewJob { payload: json(&large), ..job("a") }]);
    let whole = found(&mut db, find(JobFilter::new(), &JobStatus::ALL));
    assert_eq!(whole.jobs[0].payload_json(), Some(large.as_str()));
    assert_eq!(whole.jobs[0].payload::<String>().unwrap().len(), 5_000);
    assert!(whole.jobs[0].payload::<u8>().is_err());
    let bare = found(&mut db, find(JobFilter::new().without_content(), &JobStatus::ALL));
    assert_eq!(bare.jobs[0].payload_json(), None);
    assert!(bare.jobs[0].payload::<String>().is_err());
}

#[test]
fn a_look_goes_no_deeper_than_it_says_and_tells_how_deep_it_went() {
    let mut db = Db::new();
    let ids = db.enqueue((0..40).map(|nth| job(if nth == 0 { "rare" } else { "a" })).collect());
    let rare = JobFilter::new().kind("rare");
    let shallow = found(&mut db, Find { look: 10, ..find(rare.clone(), &JobStatus::ALL) });
    assert_eq!((numbers(&shallow), shallow.floor), (vec![], Some(ids[30])));
    let next = found(&mut db, Find { look: 30, below: ids[30], ..find(rare.clone(), &JobStatus::ALL) });
    assert_eq!((numbers(&next), next.floor), (vec![ids[0]], Some(ids[0])), "it cannot know that nothing is below");
    let deep = found(&mut db, Find { look: 41, ..find(rare, &JobStatus::ALL) });
    assert_eq!((numbers(&deep), deep.floor), (vec![ids[0]], None));
}

/// The two tables are looked at equally often, not equally far: what lies below the higher floor waits.
#[test]
fn a_window_that_ends_in_one_table_hides_nothing_of_the_other() {
    let mut db = Db::new();
    let ids = db.enqueue((0..20).map(|_| job("a")).collect());
    let statuses = vec![JobStatus::Pending];
    db.inquire(Inquiry::Cancel(Touch { ids: ids[..10].to_vec(), statuses, patient: false }));
    let mut seen = Vec::new();
    let mut below = i64::MAX;
    loop {
        let it = found(&mut db, Find { look: 3, most: 2, below, ..find(JobFilter::new(), &JobStatus::ALL) });
        seen.extend(numbers(&it));
        below = match (it.jobs.len(), it.lowest, it.floor) {
            (2, Some(lowest), _) => lowest,
            (_, _, Some(floor)) => floor,
            _ => break,
        };
    }
    let newest_first: Vec<i64> = ids.into_iter().rev().collect();
    assert_eq!(seen, newest_first);
}

#[test]
fn rows_that_make_no_sense_are_named_and_hide_no_other() {
    let mut db = Db::new();
    let ids = db.enqueue((0..6).map(|_| job("a")).collect());
    db.run("ALTER TABLE {schema}.live DROP CONSTRAINT live_valid");
    db.run(&format!("UPDATE {{schema}}.live SET priority = 77 WHERE id = {}", ids[1]));
    db.run(&format!("UPDATE {{schema}}.live SET run_count = -1 WHERE id = {}", ids[2]));
    db.run(&format!(
        "UPDATE {{schema}}.live SET kind = E'\\n\\t' || repeat('x', 5000), payload = NULL WHERE id = {}",
        ids[3]
    ));
    db.run(&format!(
        "UPDATE {{schema}}.live SET created_at = '-infinity', visible_at = 'infinity', state = 1 WHERE id = {}",
        ids[4]
    ));
    let page = found(&mut db, find(JobFilter::new(), &JobStatus::ALL));
    assert_eq!(numbers(&page), [ids[5], ids[4], ids[3], ids[0]]);
    assert_eq!(page.unreadable, [ids[2], ids[1]]);
    assert_eq!(page.lowest, Some(ids[0]));
    let total = stats(&mut db).total();
    assert_eq!(total.ready + total.scheduled, 6);
    db.run("UPDATE {schema}.live SET state = 0, visible_at = '-infinity'");
    assert!(stats(&mut db).total().oldest_ready > Some(Duration::from_secs(1_000_000)));
}

#[test]
fn a_journal_is_read_in_the_order_in_which_it_was_written() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.settle_one(ME, bare(run, Ending::Retried));
    let run = db.claim_one(ME, run.job);
    db.settle_one(ME, Settlement { note: Some("end".into()), ..bare(run, Ending::Completed) });
    // A clock that was set back changes nothing.
    db.run("UPDATE {schema}.finished SET finished_at = now() - interval '1 day'");
    let mut page = |after, most| match db.inquire(Inquiry::Journal { job: run.job, after, most }) {
        Finding::Journal(page) => page,
        other => panic!("{other:?}"),
    };
    let whole = page(0, 10);
    let events: Vec<_> = whole.entries.iter().map(|entry| entry.event).collect();
    assert_eq!(events, [crate::JournalEvent::Retried, crate::JournalEvent::Completed]);
    assert_eq!((whole.rows, whole.last), (2, None), "the end comes last");
    let first = page(0, 1);
    assert_eq!(first.entries.len(), 1);
    let second = page(first.last.unwrap(), 1);
    assert_eq!((second.entries.len(), second.last), (1, None));
    assert_eq!(second.entries[0].note.as_deref(), Some("end"));
}

#[test]
fn counts_are_of_one_instant_and_by_kind() {
    let mut db = Db::new();
    let started: SystemTime = db.value("SELECT now()");
    let none = stats(&mut db);
    assert!(none.kinds.is_empty() && none.at >= started, "the instant is known where there is nothing");
    db.enqueue(vec![job("a"), job("a"), NewJob { delay: 100.0, ..job("a") }, job("b")]);
    let run = db.claimed_one(ME);
    db.settle_one(ME, bare(run, Ending::Dead));
    db.run("UPDATE {schema}.live SET visible_at = now() - interval '90 s' WHERE kind = 'b'");
    db.run(
        "INSERT INTO {schema}.live (kind, payload, state, visible_at) VALUES ('due', '1', 1, now() - interval '5 s')",
    );
    db.inquire(Inquiry::PauseKind("c".into()));
    let stats = stats(&mut db);
    let a = &stats.kinds["a"];
    assert_eq!((a.scheduled, a.dead, a.finished_last_minute, a.paused), (1, 1, 1, false));
    assert_eq!(a.ready + a.claimed, 2);
    let b = &stats.kinds["b"];
    assert_eq!(b.ready + b.claimed, 1);
    let due = &stats.kinds["due"];
    assert_eq!((due.ready, due.scheduled), (1, 0));
    assert!(due.oldest_ready.is_some_and(|age| (5..60).contains(&age.as_secs())), "{due:?}");
    assert!(stats.kinds["c"].paused);
    assert!(stats.at > none.at && !stats.kinds.contains_key(""));
}

/// How many rows each statement reads, and of which plan, beside a million finished jobs.
#[test]
fn history_costs_what_it_returns_beside_a_million_finished_jobs() {
    let mut db = Db::new();
    db.run("SET statement_timeout = 0");
    db.run(
        "INSERT INTO {schema}.finished (id, created_at, visible_at, finished_at, run_count, failure_count, priority, \
           status, outcome, kind, claimed_by, payload) \
         SELECT i, t, t, t, 1, 0, 1, s, s, 'kind_' || i % 10, 'w', '1' \
         FROM generate_series(1, 1000000) i, LATERAL (SELECT now() - (1000000 - i) * interval '1 s' AS t, \
           CASE i % 1000 WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 3 END AS s) x",
    );
    db.run("INSERT INTO {schema}.journal (job_id, run_no, event) SELECT i, 0, 10 FROM generate_series(1, 100000) i");
    db.run("INSERT INTO {schema}.payload (job_id, body) SELECT i, '1' FROM generate_series(1, 100000) i");
    db.run("SELECT setval('{schema}.job_id', 1000001)");
    db.enqueue((0..1_000).map(|_| job("a")).collect());
    for analysed in [false, true] {
        if analysed {
            db.run(
                "ANALYZE {schema}.finished; ANALYZE {schema}.live; ANALYZE {schema}.journal; ANALYZE {schema}.payload",
            );
        }
        for (what, inquiry, most) in inquiries() {
            let read = rows_read(&mut db, what, &Statement::Inquiry(inquiry));
            println!("{what}: {read}, analysed: {analysed}");
            assert!(read <= most, "{what} reads {read} entries, analysed: {analysed}");
        }
    }
}

/// With the most entries that each may read, from all indexes together.
fn inquiries() -> Vec<(&'static str, Inquiry, i64)> {
    let all = JobStatus::ALL;
    let page = |filter: JobFilter, look| {
        let statuses = filter.statuses_among(&all);
        Inquiry::Find(Find { look, most: 101, ..find(filter, &statuses) })
    };
    let requeue = Touch { ids: vec![1_000, 2_000], statuses: vec![JobStatus::Dead], patient: true };
    let old = |status| Inquiry::Cleanup(CleanupBatch { status, age: 3_600.0, from: f64::NEG_INFINITY, most: 100 });
    vec![
        ("a job", Inquiry::Job(77), 4),
        ("a page of all", page(JobFilter::new(), 101), 900),
        ("a page of the dead", page(JobFilter::new().status(JobStatus::Dead), 101), 900),
        ("a look for the dead of a kind", page(JobFilter::new().status(JobStatus::Dead).kind("none"), 20_000), 2_100),
        ("a look for a rare kind", page(JobFilter::new().kind("none"), 1_000), 2_100),
        ("a journal", Inquiry::Journal { job: 77, after: 0, most: 1_000 }, 10),
        ("the counts", Inquiry::Stats, 3_200),
        ("the paused kinds", Inquiry::PausedKinds, 1),
        ("cancelling", Inquiry::Cancel(Touch { ids: vec![77, 1_000_005], statuses: all.to_vec(), patient: true }), 20),
        ("requeueing", Inquiry::Requeue(requeue), 40),
        ("deleting completed jobs", old(JobStatus::Completed), 700),
        ("deleting dead jobs", old(JobStatus::Dead), 700),
    ]
}

/// Runs the statement as a session does, rolls it back, and returns how many entries its scans have read.
fn rows_read(db: &mut Db, what: &str, statement: &Statement) -> i64 {
    let mut client = session();
    let mut transaction = client.transaction().unwrap();
    for Command { text, params, .. } in statement.commands() {
        let sql = transaction.prepare(db.texts.sql(text)).unwrap();
        let params: Vec<_> = params.iter().map(|param| param.as_sql()).collect();
        transaction.query(&sql, &params).unwrap();
    }
    let counts = "SELECT sum(pg_stat_get_xact_tuples_returned(c.oid))::int8, \
           sum(pg_stat_get_xact_numscans(c.oid)) FILTER (WHERE c.relkind = 'r' AND c.relname <> 'kind_state')::int8 \
         FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'i')";
    let row = transaction.query_one(counts, &[&db.schema.quoted()]).unwrap();
    assert_eq!(row.get::<_, i64>(1), 0, "{what}: sequential scans");
    transaction.rollback().unwrap();
    row.get(0)
}
