//! What a claim takes, and what it tells.

use super::*;

#[test]
fn a_bounded_claim_begins_at_its_keys() {
    let mut db = Db::new();
    let all: Vec<i64> = (0..4).map(|_| db.enqueue_one("a")).collect();
    db.run("UPDATE {schema}.live SET created_at = '2020-01-01' WHERE kind = 'a'");
    let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_577_836_800);
    let other = db.enqueue_one("b");
    let from = |at: Option<SystemTime>, id| {
        let none = || vec![None, at, None, None, None, None];
        Claim { bounds: Some(Bounds { created_at: none(), ids: vec![0, id, 0, 0, 0, 0] }), ..claim(ME) }
    };
    assert_eq!(ids(&db.claim(from(Some(at), all[2]))), [all[2], all[3], other]);
    assert_eq!(ids(&db.claim(from(Some(at + std::time::Duration::from_micros(1)), 0))), [0; 0]);
    assert_eq!(ids(&db.claim(from(None, 0))), [all[0], all[1]]);
}

const MANY: [&str; 12] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10", "k11"];

/// Of more kinds than rows that are looked at, or of as many: `spare` decides.
fn of_many(want: i32, spare: i32) -> Claim {
    let leases = vec![60.0; MANY.len()];
    Claim { kinds: MANY.to_vec(), leases, room: vec![1_000; MANY.len()], want, spare, ..claim(ME) }
}

/// Claims, and undoes that.
fn tried(db: &mut Db, claim: Claim) -> (Vec<i64>, u64) {
    let reply = db.claim(claim);
    db.run("UPDATE {schema}.live SET state = 0, claimed_by = NULL, claim_expires_at = NULL WHERE state = 2");
    (ids(&reply), reply.looked)
}

#[test]
fn among_many_kinds_the_same_jobs_are_claimed_as_when_each_kind_is_looked_through() {
    let mut db = Db::new();
    // The same in each run, and no order in it: kinds that have none, few or many, of all priorities and ages.
    db.run(
        "INSERT INTO {schema}.live (kind, priority, created_at, payload, state) \
         SELECT 'k' || (i * i * 7 % 11), (i * 5 % 7) % 3, '2020-01-01'::timestamptz + make_interval(secs => i * 37 % 101), \
         '1', 0 FROM generate_series(1, 150) i",
    );
    let skip: Vec<i64> = (1..150).step_by(4).collect();
    let variants: [fn(Claim) -> Claim; 4] = [
        |it| it,
        |it| Claim { floor: 1, ..it },
        |it| Claim { floor: 2, room: (1..=12).map(|nth| nth % 3 + 1).collect(), ..it },
        |it| Claim { room: vec![1; 12], ..it },
    ];
    for want in 1..9 {
        for vary in variants {
            for skip in [Vec::new(), skip.clone()] {
                let (pruned, whole) = (of_many(want, 2), of_many(want, 12));
                assert!(pruned.text() == Text::ClaimMany && whole.text() == Text::Claim);
                let (pruned, whole) = [pruned, whole].map(|it| vary(Claim { skip: skip.clone(), ..it })).into();
                let (pruned, whole) = (tried(&mut db, pruned), tried(&mut db, whole));
                assert_eq!(pruned.0, whole.0, "{want}");
                assert!(pruned.1 <= whole.1.min(u64::from(want.unsigned_abs()) + 2), "{pruned:?} {whole:?}");
            }
        }
    }
}

#[test]
fn paused_kinds_take_no_place_among_many() {
    let mut db = Db::new();
    let all: Vec<i64> = MANY.iter().map(|kind| db.enqueue_one(kind)).collect();
    db.run("INSERT INTO {schema}.kind_state (kind, paused_at) SELECT 'k' || i, now() FROM generate_series(0, 8) i");
    assert_eq!(ids(&db.claim(of_many(3, 0))), all[9..]);
}

#[test]
fn among_many_kinds_few_are_looked_through() {
    let mut db = Db::new();
    db.run(
        "INSERT INTO {schema}.live (kind, payload, state) \
         SELECT 'k' || k, '1', 0 FROM generate_series(0, 11) k, generate_series(1, 40)",
    );
    let mut read = |text: Text| {
        let sql = db.texts.sql(text);
        db.client.batch_execute(&format!("PREPARE {} AS {sql}", text.name())).unwrap();
        let explain = format!(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) \
             EXECUTE {}('w', '{{60}}', '{{{}}}', array_fill(9, '{{12}}'), 0, 8, 2, 1, '{{}}')",
            text.name(),
            MANY.join(",")
        );
        let mut trial = db.client.transaction().unwrap();
        let plan: Vec<String> = trial.query(&explain, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        trial.rollback().unwrap();
        // Rows of one look, and how often it looked.
        let looks = plan.iter().filter(|line| line.contains("live_ready on live r"));
        let number = |line: &str, what: &str| {
            let behind = line.split_once(what).unwrap().1;
            behind.split([' ', ')']).next().unwrap().parse::<f64>().unwrap()
        };
        looks.map(|line| number(line, "rows=") * number(line, "loops=")).sum::<f64>()
    };
    let (many, whole) = (read(Text::ClaimMany), read(Text::Claim));
    assert!((106.0..=112.0).contains(&whole), "nine of each, its room: {whole}");
    assert!((100.0..=104.0).contains(&many), "one of each, and nine of ten: {many}");
}

#[test]
fn a_claim_says_how_long_it_looked() {
    let mut db = Db::new();
    assert_eq!(db.claim(claim(ME)).looked_for, None);
    db.enqueue_one("a");
    let seconds = db.claim(claim(ME)).looked_for.unwrap();
    assert!((0.0..10.0).contains(&seconds), "{seconds}");
}

#[test]
fn jobs_are_claimed_by_priority_then_age_then_number() {
    let mut db = Db::new();
    let of = |priority, kind: &str| NewJob { priority, ..job(kind) };
    let rows =
        vec![of(Priority::Low, "a"), of(Priority::Normal, "b"), of(Priority::Normal, "a"), of(Priority::High, "b")];
    let all = db.enqueue(rows);
    db.run(&format!("UPDATE {{schema}}.live SET created_at = now() - interval '1 h' WHERE id = {}", all[2]));
    let expected = [all[3], all[2], all[1], all[0]];
    let mut one_by_one = Vec::new();
    for _ in &expected {
        let reply = db.claim(Claim { want: 1, ..claim(ME) });
        one_by_one.extend(ids(&reply));
    }
    assert_eq!(one_by_one, expected);
    db.run("UPDATE {schema}.live SET state = 0, claimed_by = NULL, claim_expires_at = NULL, created_at = '2020-01-01'");
    db.run(&format!("UPDATE {{schema}}.live SET created_at = now() - interval '9 y' WHERE id = {}", all[2]));
    assert_eq!(ids(&db.claim(claim(ME))), expected, "the rows of one claim come in the same order");
}

#[test]
fn a_claim_brings_what_was_enqueued_and_counts_the_run() {
    let mut db = Db::new();
    let payload = r#"{"text": "\u0000 \ud800", "n": 1e400}"#;
    let id = db.enqueue(vec![NewJob { payload: json(payload), priority: Priority::Low, ..job("b") }])[0];
    let reply = db.claim(claim(ME));
    let ClaimedJob { id: run, kind, priority, failure_count, payload: got, carry, .. } = &reply.jobs[0];
    assert_eq!(*run, RunId { job: id, run: 1 });
    assert_eq!((kind.as_str(), *priority, *failure_count), ("b", Priority::Low, 0));
    assert_eq!(got.get(), payload);
    assert!(carry.is_none());
    let row = db.job(id);
    assert_eq!((row.status.as_str(), row.runs, row.claimed_by.as_deref()), ("claimed", 1, Some(ME)));
}

#[test]
fn how_long_a_job_waited_is_told_by_the_servers_clock_however_odd_its_time() {
    let mut db = Db::new();
    for (due, least, most) in
        [("now() - interval '7 s'", 7.0, 9.0), ("now() + interval '1 d'", 0.0, 0.0), ("'infinity'", 0.0, 0.0)]
    {
        let id = db.enqueue_one("a");
        db.run(&format!("UPDATE {{schema}}.live SET visible_at = {due} WHERE id = {id}"));
        let reply = db.claim(claim(ME));
        let waited = reply.jobs[0].waited().as_secs_f64();
        assert!((least..=most).contains(&waited), "{due}: {waited} s");
    }
}

#[test]
fn a_floor_keeps_more_urgent_jobs_out() {
    let mut db = Db::new();
    let rows = [Priority::High, Priority::Normal, Priority::Low].map(|priority| NewJob { priority, ..job("a") });
    let all = db.enqueue(rows.to_vec());
    assert_eq!(ids(&db.claim(Claim { floor: 2, ..claim(ME) })), [all[2]]);
    assert_eq!(ids(&db.claim(Claim { floor: 1, ..claim(ME) })), [all[1]]);
    assert_eq!(ids(&db.claim(Claim { floor: 0, ..claim(ME) })), [all[0]]);
}

#[test]
fn a_kind_is_claimed_only_up_to_its_room_and_a_claim_up_to_what_it_wants() {
    let mut db = Db::new();
    db.enqueue(vec![job("a"); 5]);
    let other = db.enqueue(vec![job("b"); 5]);
    let reply = db.claim(Claim { room: vec![2, 1_000], want: 4, ..claim(ME) });
    let kinds: Vec<&str> = reply.jobs.iter().map(|job| job.kind.as_str()).collect();
    assert_eq!(kinds, ["a", "a", "b", "b"]);
    assert_eq!(ids(&reply)[2..], other[..2]);
}

#[test]
fn scheduled_jobs_foreign_kinds_and_jobs_to_skip_are_left() {
    let mut db = Db::new();
    let skipped = db.enqueue_one("a");
    db.enqueue(vec![NewJob { delay: 60.0, ..job("a") }, job("foreign")]);
    let taken = db.enqueue_one("a");
    let reply = db.claim(Claim { skip: vec![skipped], ..claim(ME) });
    assert_eq!(ids(&reply), [taken]);
    assert_eq!(reply.looked, 1, "what is to be skipped was not a candidate");
}

#[test]
fn claims_at_the_same_time_take_different_jobs_and_never_wait() {
    let mut db = Db::new();
    let all = db.enqueue(vec![job("a"); 6]);
    let mut second = session();
    let mut open = second.transaction().unwrap();
    let first = ask(
        &mut open,
        &db.texts,
        &Statement::Exchange { settle: None, claim: Some(Claim { want: 2, ..claim(OTHER) }) },
    );
    let Reply::Exchange { claim: Some(first), .. } = first else { panic!("{first:?}") };
    assert_eq!(ids(&first), all[..2]);
    let reply = db.claim(Claim { want: 2, spare: 4, ..claim(ME) });
    assert_eq!((ids(&reply), reply.looked), (all[2..4].to_vec(), 6));
    let reply = db.claim(Claim { want: 2, spare: 1, ..claim(ME) });
    assert_eq!((ids(&reply), reply.looked), (vec![all[4]], 3), "short, although there is more: look deeper");
    open.commit().unwrap();
}

#[test]
fn each_claim_gets_the_lease_of_its_kind() {
    let mut db = Db::new();
    db.enqueue(vec![job("a"), job("b")]);
    db.claim(Claim { leases: vec![100.0, 1_000.0], ..claim(ME) });
    for (kind, lease) in [("a", 100.0), ("b", 1_000.0)] {
        let sql = format!(
            "SELECT extract(epoch FROM claim_expires_at - clock_timestamp())::float8 FROM {{schema}}.live WHERE kind = '{kind}'"
        );
        let left: f64 = db.value(&sql);
        assert!(left > lease - 20.0 && left <= lease, "{kind}: {left}");
    }
}

#[test]
fn a_claim_tells_of_leases_of_others_that_ran_out() {
    let mut db = Db::new();
    db.claimed_one(OTHER);
    db.enqueue_one("a");
    assert!(!db.claim(claim(ME)).stale, "none has run out");
    db.expire();
    db.enqueue_one("a");
    assert!(db.claim(claim(ME)).stale);
    db.enqueue_one("a");
    assert!(!db.claim(Claim { look_back: 1.0, ..claim(ME) }).stale, "it ran out longer ago than was asked");
    db.run(&format!("DELETE FROM {{schema}}.live WHERE claimed_by = '{OTHER}'"));
    db.enqueue_one("a");
    assert!(!db.claim(claim(ME)).stale, "our own do not count");
}

#[test]
fn a_row_without_its_payload_is_malformed_and_its_neighbours_are_not() {
    let mut db = Db::new();
    let broken = db.enqueue(vec![NewJob { payload: json(&large()), ..job("a") }])[0];
    let sound = db.enqueue_one("a");
    db.run(&format!("DELETE FROM {{schema}}.payload WHERE job_id = {broken}"));
    let reply = db.claim(claim(ME));
    assert_eq!(ids(&reply), [sound]);
    let expected = Malformed {
        id: RunId { job: broken, run: 1 },
        kind: "a".into(),
        why: "there is no payload".into(),
        failure_count: 0,
    };
    assert_eq!(reply.malformed, [expected]);
}

#[test]
fn an_empty_claim_says_nothing() {
    let reply = Db::new().claim(claim(ME));
    assert!(reply.jobs.is_empty() && reply.malformed.is_empty() && reply.looked == 0 && !reply.stale);
}

fn large() -> String {
    format!("\"{}\"", "x".repeat(2_000))
}

#[test]
fn many_workers_at_once_claim_every_job_exactly_once() {
    const WORKERS: usize = 4;
    let mut db = Db::new();
    let all = db.enqueue(vec![job("a"); 200]);
    let texts = db.texts.clone();
    let mut taken: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|n| {
                scope.spawn({
                    let texts = &texts;
                    move || drain(texts, n)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, all);
}

/// Claims three at a time until nothing is ready; a claim that lost all its candidates to others asks again.
fn drain(texts: &Texts, worker: usize) -> Vec<i64> {
    let mut client = session();
    let worker = format!("w{worker}");
    let mut taken = Vec::new();
    loop {
        let claim = Claim { want: 3, ..claim(&worker) };
        let reply = ask(&mut client, texts, &Statement::Exchange { settle: None, claim: Some(claim) });
        let Reply::Exchange { claim: Some(reply), .. } = reply else { panic!("{reply:?}") };
        taken.extend(ids(&reply));
        let survey = Survey { look_back: 1.0, ..survey_of(&["a"], &worker) };
        if reply.jobs.is_empty()
            && matches!(ask(&mut client, texts, &Statement::Survey(survey)), Reply::Survey(it) if !it.ready)
        {
            return taken;
        }
    }
}

#[test]
fn a_claim_that_need_not_be_durable_is_the_same_claim_and_leaves_the_session_as_it_was() {
    let mut db = Db::new();
    let id = db.enqueue_one("a");
    let relaxed = Statement::Exchange { settle: None, claim: Some(Claim { durable: false, ..claim(ME) }) };
    assert_eq!(relaxed.commands().len(), 2);
    let Reply::Exchange { claim: Some(claimed), .. } = db.ask(&relaxed) else { panic!() };
    assert_eq!(ids(&claimed), [id]);
    assert_eq!(db.value::<String>("SELECT current_setting('synchronous_commit')"), "on");
    let run = claimed.jobs[0].id;
    let settle = Settle { worker: ME.into(), rows: vec![bare(run, Ending::Completed)], discard: false, brief: true };
    let exchange = Statement::Exchange { settle: Some(settle), claim: Some(Claim { durable: false, ..claim(ME) }) };
    assert_eq!(exchange.commands().len(), 1, "what is settled waits for the disk, and its claim with it");
}
