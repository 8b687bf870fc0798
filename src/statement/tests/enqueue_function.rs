//! The functions in the database: for people, and one round of a keyed enqueue.

use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;

use super::*;
use crate::Effect;

/// One round; what is not named has its plainest value.
#[derive(Clone, Copy)]
struct Round<'a> {
    payload: &'a str,
    priority: i32,
    delay: f64,
    key: &'a str,
    decision: Option<&'a str>,
    expected: Option<&'a str>,
    carry: Option<&'a str>,
    skip: &'a [i64],
    wait: bool,
}

const FIRST: Round<'_> = Round {
    payload: "1",
    priority: 1,
    delay: 0.0,
    key: "k",
    decision: None,
    expected: None,
    carry: None,
    skip: &[],
    wait: false,
};

const ROUND: &str = "SELECT * FROM {schema}.enqueue_keyed('a', $1::text::json, $2::int, $3::float8, NULL, $4::text, \
     $5::text, $6::text, $7::text::json, $8::bigint[], $9::bool, false)";

#[derive(Debug)]
struct Told {
    answer: String,
    id: Option<i64>,
    version: Option<String>,
    due_in: Option<f64>,
    wakes: Option<bool>,
}

fn round(client: &mut impl GenericClient, schema: &SchemaName, round: Round<'_>) -> Told {
    let Round { payload, priority, delay, key, decision, expected, carry, skip, wait } = round;
    let sql = render(ROUND, schema);
    let row = client
        .query_one(&sql, &[&payload, &priority, &delay, &key, &decision, &expected, &carry, &skip, &wait])
        .unwrap();
    Told {
        answer: row.get("answer"),
        id: row.get("id"),
        version: row.get("version"),
        due_in: row.get("due_in"),
        wakes: row.get("wakes"),
    }
}

impl Db {
    fn round(&mut self, it: Round<'_>) -> Told {
        round(&mut self.client, &self.schema, it)
    }

    /// The job of the first round, and its version.
    fn first(&mut self, it: Round<'_>) -> (i64, String) {
        let id = self.round(it).id.unwrap();
        let changed = self.round(it);
        assert_eq!((changed.answer.as_str(), changed.id), ("changed", Some(id)));
        (id, changed.version.unwrap())
    }

    /// Payload, priority and state of each job.
    fn stored(&mut self) -> Vec<(String, i32, i16)> {
        let sql = "SELECT v.payload::text, v.priority::int, l.state FROM {schema}.jobs v JOIN {schema}.live l USING (id) \
             ORDER BY id";
        self.rows(sql).iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

#[test]
fn a_job_is_enqueued_with_two_words_of_sql() {
    let mut db = Db::new();
    let id: i64 = db.value(r#"SELECT {schema}.enqueue('send_email', '{"to":"ada"}')"#);
    let reply = db.claim(Claim { kinds: vec!["send_email"], leases: vec![60.0], room: vec![9], ..claim(ME) });
    let [job] = reply.jobs.as_slice() else { panic!("{reply:?}") };
    assert_eq!((job.id.job, job.payload.get(), job.priority), (id, r#"{"to":"ada"}"#, Priority::Normal));
    let id: i64 = db.value("SELECT {schema}.enqueue('tick', priority => 0, delay => 90)");
    assert!(db.job(id).is_due_in(90.0));
    let id: i64 = db.value("SELECT {schema}.enqueue('tick', due_at => now() + interval '1 h', delay => 7)");
    assert!(db.job(id).is_due_in(3_600.0));
    let rows = db.stored();
    assert_eq!(rows[1..], [("null".into(), 0, 1), ("null".into(), 1, 1)]);
}

#[test]
fn absurd_times_are_brought_into_range_by_the_function() {
    let mut db = Db::new();
    let (century, now) = (100.0 * 365.0 * 86_400.0, 0.0);
    let end_of_9999 = db.value("SELECT extract(epoch FROM '9999-12-31 23:59:59+00' - now())::float8");
    for (argument, due_in) in [
        ("delay => 'Infinity'", century),
        ("delay => 1e300", century),
        ("due_at => 'infinity'", end_of_9999),
        ("due_at => '12026-01-01'", end_of_9999),
        ("delay => '-Infinity'", now),
        ("delay => -1e300", now),
        ("due_at => '-infinity'", now),
        ("due_at => '1066-10-14'", now),
        ("delay => NULL", now),
    ] {
        for key in ["NULL", "'k'"] {
            let id: i64 = db.value(&format!("SELECT {{schema}}.enqueue('a', {argument}, dedup_key => {key})"));
            let job = db.job(id);
            assert!(job.is_due_in(due_in), "{argument}: {job:?}");
            db.run("DELETE FROM {schema}.live");
        }
    }
}

#[test]
fn an_instant_centuries_ahead_is_stored_as_given_with_a_key_or_without() {
    let mut db = Db::new();
    for argument in ["", ", dedup_key => 'k'"] {
        let sql = format!("SELECT {{schema}}.enqueue('a', due_at => '2500-01-02 03:04:05.678901+00'{argument})");
        let id: i64 = db.value(&sql);
        let stored =
            format!("SELECT visible_at = '2500-01-02 03:04:05.678901+00' FROM {{schema}}.live WHERE id = {id}");
        assert!(db.value::<bool>(&stored), "{argument}");
    }
}

#[test]
fn a_candidate_that_is_never_due_fails_no_round() {
    let mut db = Db::new();
    for (time, replaced_in) in [("infinity", 50.0), ("-infinity", 0.0)] {
        let id = db.round(Round { delay: 100.0, ..FIRST }).id.unwrap();
        db.run(&format!("UPDATE {{schema}}.live SET visible_at = '{time}'"));
        let told = db.round(FIRST);
        assert_eq!((told.answer.as_str(), told.id), ("changed", Some(id)));
        let version = told.version.unwrap();
        assert_eq!(db.round(Round { decision: Some("keep"), expected: Some(&version), ..FIRST }).answer, "kept");
        let round = Round { delay: 50.0, decision: Some("replace"), expected: Some(&version), ..FIRST };
        let told = db.round(round);
        assert_eq!((told.answer.as_str(), told.due_in), ("replaced", Some(replaced_in)));
        db.run("DELETE FROM {schema}.live");
    }
}

#[test]
fn a_payload_of_the_type_jsonb_is_cast() {
    let mut db = Db::new();
    db.rows("SELECT {schema}.enqueue('a', to_jsonb(r)::json) FROM (SELECT 7 AS page) r");
    db.rows("SELECT {schema}.enqueue('a', payload => to_json(r)) FROM (SELECT 7 AS page) r");
    let stored: Vec<serde_json::Value> =
        db.stored().iter().map(|(payload, ..)| serde_json::from_str(payload).unwrap()).collect();
    assert_eq!(stored, [serde_json::json!({"page": 7}), serde_json::json!({"page": 7})]);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let mut db = Db::new();
    let long = |count: usize| format!("repeat('x', {count})");
    for (arguments, word) in [
        ("''".to_owned(), "kind is empty"),
        ("NULL".to_owned(), "kind is empty"),
        (long(101), "kind has 101 bytes"),
        ("E'a\\nb'".to_owned(), "kind has a control character"),
        ("U&'a\\0085b'".to_owned(), "kind has a control character"),
        ("'a', NULL".to_owned(), "payload is NULL"),
        (format!("'a', to_json({})", long(1_000_000)), "payload has 1000002 bytes"),
        ("'a', priority => 3".to_owned(), "priority is 3"),
        ("'a', priority => NULL".to_owned(), "priority is"),
        ("'a', delay => 'NaN'".to_owned(), "delay is not a number"),
        ("'a', dedup_key => ''".to_owned(), "dedup key is empty"),
        (format!("'a', dedup_key => {}", long(201)), "dedup key has 201 bytes"),
        ("'a', dedup_key => E'\\x7f'".to_owned(), "dedup key has a control character"),
        ("'a', on_duplicate => 'with'".to_owned(), "on_duplicate is 'with'"),
        ("'a', on_duplicate => NULL".to_owned(), "on_duplicate is NULL"),
        ("'a', dedup_key => 'k', on_duplicate => 'merge'".to_owned(), "is 'merge', not keep"),
    ] {
        let sql = db.render(&format!("SELECT {{schema}}.enqueue({arguments})"));
        let error = db.client.query(&sql, &[]).unwrap_err();
        let refusal = error.as_db_error().unwrap();
        assert_eq!(refusal.code().code(), "22023", "{arguments}: {refusal}");
        assert!(refusal.message().contains(word), "{arguments}: {refusal}");
    }
    let longest = format!("'a', dedup_key => {}, payload => to_json({})", long(200), long(999_998));
    db.rows(&format!("SELECT {{schema}}.enqueue({longest})"));
    db.rows("SELECT {schema}.enqueue('é, with; separators', dedup_key => U&'\\00e9 ''*')");
}

#[test]
fn the_functions_ignore_the_search_path_and_what_lies_in_it() {
    let mut db = Db::new();
    db.run("CREATE TEMP TABLE live (id int); CREATE TEMP TABLE payload (id int); CREATE TEMP TABLE journal (id int)");
    for path in ["pg_temp, pg_catalog", "nowhere", "''"] {
        db.run(&format!("SET search_path = {path}; SET standard_conforming_strings = off"));
        db.rows("SELECT {schema}.enqueue('a', to_json(pg_catalog.repeat('x', 2000)), dedup_key => 'k')");
    }
    assert_eq!(db.value::<i64>("SELECT pg_catalog.count(*) FROM {schema}.live"), 1);
    assert_eq!(db.value::<i64>("SELECT pg_catalog.count(*) FROM {schema}.journal"), 2);
}

#[test]
fn a_duplicate_replaces_keeps_or_stands_beside_as_it_is_told() {
    let mut db = Db::new();
    let mut enqueue = |payload: i32, more: &str| {
        db.value::<i64>(&format!("SELECT {{schema}}.enqueue('a', '{payload}', dedup_key => 'k'{more})"))
    };
    let first = enqueue(1, "");
    assert_eq!(enqueue(2, ""), first);
    assert_eq!(enqueue(3, ", on_duplicate => 'keep'"), first);
    let beside = enqueue(4, ", on_duplicate => 'independent'");
    assert_ne!(beside, first);
    assert_eq!(enqueue(5, ", priority => 2"), first, "the oldest is the candidate");
    assert_eq!(db.stored(), [("5".into(), 2, 0), ("4".into(), 1, 0)]);
    let merged: Vec<_> = db.history(first).into_iter().map(|(run, event, note)| (run, event, note.unwrap())).collect();
    let entry = |note: &str| (0, "merged".to_owned(), note.to_owned());
    assert_eq!(merged, [entry("replaced"), entry("kept"), entry("replaced")]);
}

#[test]
fn only_pending_jobs_of_the_same_kind_and_key_are_candidates() {
    let mut db = Db::new();
    let mut enqueue =
        |kind: &str, key: &str| db.value::<i64>(&format!("SELECT {{schema}}.enqueue('{kind}', dedup_key => '{key}')"));
    let first = enqueue("a", "k");
    assert_ne!(enqueue("b", "k"), first);
    assert_ne!(enqueue("a", "l"), first);
    let run = db.claim_one(ME, first);
    let second: i64 = db.value("SELECT {schema}.enqueue('a', dedup_key => 'k')");
    assert_ne!(second, first, "a running job is no candidate");
    db.settle_one(ME, Settlement { delay: 50.0, ..bare(run, Ending::Paused) });
    let third: i64 = db.value("SELECT {schema}.enqueue('a', dedup_key => 'k')");
    assert_eq!(third, first, "a paused one is, and it is the oldest");
    assert!(db.job(first).is_due_in(0.0), "the earlier due time wins");
}

#[test]
fn a_round_that_finds_what_it_did_not_expect_writes_nothing_and_shows_it() {
    let mut db = Db::new();
    let (id, version) = db.first(Round { delay: 50.0, ..FIRST });
    let decided = Round { decision: Some("with"), expected: Some(&version), payload: "2", carry: Some("7"), ..FIRST };
    let told = db.round(Round { priority: 2, ..decided });
    assert_eq!((told.answer.as_str(), told.id, told.wakes), ("merged", Some(id), Some(true)));
    let told = db.round(decided);
    assert_eq!((told.answer.as_str(), told.id), ("changed", Some(id)), "the version is not current any more");
    assert!(told.due_in.unwrap() <= 0.0);
    assert_eq!(db.stored(), [("2".into(), 1, 0)], "merging keeps the more urgent priority");
    assert_eq!(db.job(id).carry.as_deref(), Some("7"));
    let version = told.version.unwrap();
    let keep = Round { decision: Some("keep"), expected: Some(&version), ..FIRST };
    assert_eq!(db.round(keep).answer, "kept");
    assert_eq!(db.round(keep).answer, "kept", "which changes nothing");
    let run = db.claim_one(ME, id);
    let told = db.round(keep);
    assert_eq!((told.answer.as_str(), told.id), ("changed", None), "it is not pending any more");
    db.settle_one(ME, Settlement { carry: Some(json("8")), ..bare(run, Ending::Paused) });
    assert_eq!(db.round(keep).answer, "changed", "it has run meanwhile");
    let told = db.round(Round { decision: Some("independent"), ..keep });
    assert_eq!(told.answer, "changed");
    assert_eq!(db.job(id).carry.as_deref(), Some("8"));
}

#[test]
fn versions_differ_also_within_one_transaction() {
    let mut db = Db::new();
    let schema = db.schema.clone();
    let mut open = db.client.transaction().unwrap();
    round(&mut open, &schema, FIRST);
    let version = round(&mut open, &schema, FIRST).version.unwrap();
    let decided = Round { decision: Some("replace"), expected: Some(&version), ..FIRST };
    assert_eq!(round(&mut open, &schema, decided).answer, "replaced");
    assert_eq!(round(&mut open, &schema, decided).answer, "changed");
}

#[test]
fn replacing_forgives_failures_and_merging_does_not() {
    let mut db = Db::new();
    let (id, _) = db.first(FIRST);
    for _ in 0..3 {
        let run = db.claim_one(ME, id);
        db.settle_one(ME, Settlement { carry: Some(json("5")), ..bare(run, Ending::Retried) });
    }
    let version = db.round(FIRST).version.unwrap();
    db.round(Round { decision: Some("with"), expected: Some(&version), ..FIRST });
    let job = db.job(id);
    assert_eq!((job.runs, job.failures, job.carry.as_deref()), (3, 3, Some("5")), "the carry that was stored stays");
    let version = db.round(FIRST).version.unwrap();
    db.round(Round { decision: Some("replace"), expected: Some(&version), carry: Some("9"), ..FIRST });
    let job = db.job(id);
    assert_eq!((job.runs, job.failures, job.carry), (3, 0, None));
}

#[test]
fn a_payload_moves_between_the_tables_as_it_grows_and_shrinks() {
    let mut db = Db::new();
    let large = |letter: char| format!("\"{}\"", letter.to_string().repeat(2_000));
    let id = db.round(FIRST).id.unwrap();
    for (payload, apart) in [(large('x'), 1), (large('y'), 1), ("1".to_owned(), 0)] {
        let it = Round { payload: &payload, decision: Some("replace"), expected: Some("*"), ..FIRST };
        assert_eq!(db.round(it).answer, "replaced");
        assert_eq!(db.stored(), [(payload.clone(), 1, 0)]);
        assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.payload"), apart);
        let found = db.rows("SELECT found_payload::text FROM {schema}.enqueue_keyed('a', '1', 1, 0, NULL, 'k', NULL, NULL, NULL, NULL, false, false)");
        assert_eq!(found[0].get::<_, String>(0), payload);
    }
    assert_eq!(db.claim_one(ME, id).run, 1);
}

#[test]
fn candidates_that_are_to_be_left_alone_are_passed_over() {
    let mut db = Db::new();
    let (id, _) = db.first(FIRST);
    let beside = db.round(Round { skip: &[id], ..FIRST });
    assert_eq!(beside.answer, "inserted");
    let told = db.round(Round { skip: &[id], ..FIRST });
    assert_eq!((told.answer.as_str(), told.id), ("changed", beside.id));
}

#[test]
fn who_does_not_wait_is_told_that_another_has_the_key_or_the_job() {
    let mut db = Db::new();
    let (schema, mut other) = (db.schema.clone(), session());
    let mut open = other.transaction().unwrap();
    round(&mut open, &schema, FIRST);
    assert_eq!(db.round(FIRST).answer, "busy");
    assert_eq!(db.round(Round { key: "another", ..FIRST }).answer, "inserted");
    open.commit().unwrap();
    let version = db.round(FIRST).version.unwrap();
    let mut open = other.transaction().unwrap();
    open.query(&render("SELECT FROM {schema}.live FOR UPDATE", &schema), &[]).unwrap();
    let decided = Round { decision: Some("keep"), expected: Some(&version), ..FIRST };
    assert_eq!(db.round(decided).answer, "busy");
    open.rollback().unwrap();
    assert_eq!(db.round(decided).answer, "kept");
}

#[test]
fn twenty_sessions_that_enqueue_one_key_for_the_first_time_leave_one_job() {
    let mut db = Db::new();
    let sql = db.render("SELECT {schema}.enqueue('a', $1::text::json, dedup_key => 'k')");
    std::thread::scope(|scope| {
        for nth in 0..20 {
            let sql = &sql;
            scope.spawn(move || session().query(sql, &[&nth.to_string()]).unwrap());
        }
    });
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.live"), 1);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.journal WHERE event = 10"), 19);
}

#[test]
fn a_key_needs_a_transaction_that_sees_what_others_commit() {
    let mut db = Db::new();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let sql = db.render("SELECT {schema}.enqueue('a', dedup_key => 'k')");
        db.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        let error = db.client.query(&sql, &[]).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "VT001");
        assert!(error.as_db_error().unwrap().message().contains(&level.to_lowercase()), "{error:?}");
        db.run(&format!("ROLLBACK; BEGIN ISOLATION LEVEL {level}"));
        db.rows("SELECT {schema}.enqueue('a')");
        db.run("COMMIT");
    }
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.live"), 2);
}

#[test]
fn workers_hear_of_it_when_the_transaction_commits_and_never_of_what_is_rolled_back() {
    let mut db = Db::new();
    let mut listener = session();
    let texts = db.texts.clone();
    ask(&mut listener, &texts, &Statement::Listen);
    db.run("BEGIN; SELECT {schema}.enqueue('rolled back'); ROLLBACK");
    db.run("SELECT {schema}.enqueue('silent', notify => false)");
    db.run("SELECT {schema}.enqueue('later', delay => 1.5, dedup_key => 'k')");
    db.run("SELECT {schema}.enqueue('later', '2', delay => 9, dedup_key => 'k')");
    db.run(
        "SELECT {schema}.enqueue('later', '2', delay => 9, dedup_key => 'k', on_duplicate => 'keep', priority => 0)",
    );
    db.run("SELECT {schema}.enqueue('later', '3', dedup_key => 'k')");
    db.run("SELECT {schema}.enqueue('later', '3', dedup_key => 'k', priority => 0)");
    db.run("SELECT {schema}.enqueue('a,b')");
    let mut notifications = listener.notifications();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != "v1;*;0") {
        let next = notifications.timeout_iter(Duration::from_secs(20)).next().unwrap().unwrap();
        assert_eq!(next.channel(), db.schema.as_str());
        heard.push(next.payload().to_owned());
    }
    assert_eq!(heard, ["v1;later;1500", "v1;later;0", "v1;later;0", "v1;*;0"]);
}

#[test]
fn a_keyed_enqueue_uses_the_index_of_keys_whatever_the_session_and_the_planner_think() {
    let mut db = Db::new();
    db.client = Client::connect(&cluster::shared_url().unwrap(), NoTls).unwrap();
    db.run("SELECT {schema}.enqueue('a', dedup_key => n::text) FROM generate_series(1, 50) n");
    let scans = "SELECT seq_scan::bigint FROM pg_stat_xact_user_tables WHERE relid = '{schema}.live'::regclass";
    db.run("BEGIN; SELECT {schema}.enqueue('a', dedup_key => n::text) FROM generate_series(1, 50) n");
    assert_eq!(db.value::<i64>(scans), 0);
    db.run("COMMIT");
}

#[test]
fn many_rounds_go_in_one_statement_and_are_answered_in_their_order() {
    let mut db = Db::new();
    let row = |key: &str, stance: Option<Stance>| {
        let job = NewJob { dedup_key: Some(key.into()), payload: json("[2]"), ..job("a") };
        Arc::new(KeyedJob { job: Arc::new(job), stance, skip: Vec::new() })
    };
    let (id, version) = db.first(Round { delay: 100.0, ..FIRST });
    let with = Stance { decision: Decision::With(Some(json("3"))), expected: version };
    let rows = vec![row("m", None), row("k", Some(with)), row("m", None), row("l", None)];
    let Reply::Keyed(answers) = db.ask(&Statement::EnqueueKeyed(EnqueueKeyed { rows, wait: false, notify: false }))
    else {
        panic!()
    };
    let [inserted, merged, changed, KeyedAnswer::Stored { effect: Effect::Inserted, .. }] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!(matches!(inserted, KeyedAnswer::Stored { effect: Effect::Inserted, wakes: true, .. }));
    assert!(
        matches!(merged, KeyedAnswer::Stored { id: it, effect: Effect::Merged, wakes: true, due_in } if *it == id && *due_in == 0.0)
    );
    let KeyedAnswer::Changed(Some(candidate)) = changed else { panic!("{changed:?}") };
    let found = candidate.found.as_ref().unwrap();
    assert_eq!((found.payload.as_str(), found.carry.as_deref(), found.run_count), ("[2]", None, 0));
    assert_eq!(db.job(id).carry.as_deref(), Some("3"));
}
