//! That the hot statements use their indexes, whatever the planner believes about the tables.

use super::*;

/// What the plan of each hot text reads, in the planner's words.
const EXPECTED: &[(Text, &[&str])] = &[
    (
        Text::Claim,
        &["live_ready on live r", "live_lease on live s", "Tid Scan on live l", "Tid Scan on live j", "payload_pkey"],
    ),
    (
        Text::ClaimFrom,
        &["live_ready on live r", "live_lease on live s", "Tid Scan on live l", "Tid Scan on live j", "payload_pkey"],
    ),
    (
        Text::ClaimMany,
        &[
            "live_ready on live r",
            "live_ready on live r_1",
            "live_lease on live s",
            "Tid Scan on live l",
            "Tid Scan on live j",
            "payload_pkey",
        ],
    ),
    (
        Text::ExchangeCompleted,
        &[
            "live_pkey on live l",
            "live_ready on live r",
            "live_lease on live s",
            "Tid Scan on live l_",
            "Tid Scan on live j",
        ],
    ),
    (
        Text::ExchangeCompletedFrom,
        &[
            "live_pkey on live l",
            "live_ready on live r",
            "live_lease on live s",
            "Tid Scan on live l_",
            "Tid Scan on live j",
        ],
    ),
    (
        Text::ExchangeCompletedMany,
        &[
            "live_pkey on live l",
            "live_ready on live r_1",
            "live_lease on live s",
            "Tid Scan on live l_",
            "Tid Scan on live j",
        ],
    ),
    (
        Text::ExchangeDiscarded,
        &["live_pkey on live l", "live_ready on live r", "live_lease on live s", "payload_pkey", "journal_pkey"],
    ),
    (
        Text::ExchangeDiscardedFrom,
        &["live_pkey on live l", "live_ready on live r", "live_lease on live s", "payload_pkey", "journal_pkey"],
    ),
    (
        Text::Settle,
        &["live_pkey on live l", "Tid Scan on live j", "finished_pkey on finished f", "journal_run on journal e"],
    ),
    (Text::SettleCompleted, &["live_pkey on live l", "Tid Scan on live j"]),
    (Text::SettleDiscarded, &["live_pkey on live l", "Tid Scan on live j", "payload_pkey", "journal_pkey"]),
    (Text::Renew, &["live_pkey on live l", "live_pkey on live j"]),
    (Text::Stale, &["live_lease on live s"]),
    (Text::Promote, &["live_scheduled on live s", "live_pkey on live l", "live_pkey on live j"]),
    (Text::Survey, &["live_ready on live r", "live_scheduled on live s", "live_lease on live s"]),
    (Text::Recover, &["live_pkey on live l", "live_pkey on live j"]),
    (Text::Held, &["live_lease on live l"]),
    (Text::Job, &["live_pkey on live l", "finished_pkey on finished f", "payload_pkey"]),
    (
        Text::Find,
        &["live_pkey on live l", "finished_pkey on finished f", "finished_failed on finished f", "payload_pkey"],
    ),
    (Text::Journal, &["journal_pkey on journal e", "finished_pkey on finished f"]),
    (
        Text::Stats,
        &[
            "live_ready on live r",
            "live_scheduled on live l",
            "live_lease on live c",
            "finished_failed",
            "finished_age",
        ],
    ),
    (Text::PausedKinds, &["kind_state_pkey on kind_state s"]),
    (Text::Workers, &["live_lease on live l"]),
    (Text::Cancel, &["live_pkey on live l", "live_pkey on live j", "finished_pkey on finished f"]),
    (Text::LockKeys, &["finished_pkey on finished f"]),
    (Text::Requeue, &["finished_pkey on finished f", "live_pkey on live l", "live_dedup on live l"]),
    (Text::Cleanup, &["finished_age on finished f", "finished_pkey on finished f", "payload_pkey", "journal_pkey"]),
    (Text::Cancellations, &["live_pkey on live l"]),
];

const UNWANTED: &[&str] = &["Seq Scan", "Bitmap", "Hash Join", "Merge Join", "Memoize", "Materialize"];

#[test]
fn hot_statements_use_their_indexes_on_an_empty_table_that_was_never_analysed() {
    check(&mut Db::new());
}

#[test]
fn hot_statements_use_their_indexes_on_ten_thousand_rows_analysed_or_not() {
    let mut db = Db::new();
    db.run(
        "INSERT INTO {schema}.live (kind, priority, payload, state, visible_at, run_count, claimed_by, claim_expires_at) \
         SELECT 'a', i % 3, '1', i % 3, now(), 1, CASE i % 3 WHEN 2 THEN 'w' END, CASE i % 3 WHEN 2 THEN now() END \
         FROM generate_series(1, 10000) i",
    );
    check(&mut db);
    db.run("ANALYZE {schema}.live");
    check(&mut db);
}

fn check(db: &mut Db) {
    for (text, expected) in EXPECTED {
        let plan = plan(db, *text);
        for line in *expected {
            assert!(plan.contains(line), "{}: no {line} in\n{plan}", text.name());
        }
        for node in UNWANTED {
            assert!(!plan.contains(node), "{}: {node} in\n{plan}", text.name());
        }
    }
}

/// The generic plan: the one that a session keeps.
fn plan(db: &mut Db, text: Text) -> String {
    let mut client = session();
    let sql = db.texts.sql(text);
    let count = client.prepare(sql).unwrap().params().len();
    client.batch_execute(&format!("PREPARE explained AS {sql}")).unwrap();
    let nulls = if count == 0 { String::new() } else { format!("({})", vec!["NULL"; count].join(", ")) };
    let rows = client.query(&format!("EXPLAIN (COSTS OFF) EXECUTE explained {nulls}"), &[]).unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

#[test]
fn accepted_results_are_looked_up_in_a_hash_table_not_in_a_list() {
    let mut db = Db::new();
    let mut client = session();
    let sql = db.texts.sql(Text::Settle).to_owned();
    client.batch_execute(&format!("PREPARE explained AS {sql}")).unwrap();
    let explain =
        "EXPLAIN (COSTS OFF, VERBOSE) EXECUTE explained (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
    let plan: Vec<String> = client.query(explain, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.to_lowercase().contains("hashed subplan")), "{plan:#?}");
    db.run("SELECT 1");
}

#[test]
fn a_bounded_claim_does_not_read_what_an_old_snapshot_keeps_in_the_index() {
    let mut db = Db::new();
    let mut old = session();
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    db.run(
        "INSERT INTO {schema}.live (kind, payload, created_at) SELECT 'a', '1', '2020-01-01' FROM generate_series(1, 20000)",
    );
    db.run("DELETE FROM {schema}.live");
    db.run("INSERT INTO {schema}.live (kind, payload, created_at) VALUES ('a', '1', '2020-01-02')");
    let mut blocks = |text, bounds: &str| {
        let sql = db.texts.sql(text);
        db.client.batch_execute(&format!("PREPARE {} AS {sql}", text.name())).unwrap();
        // In a transaction that is rolled back, so that the second finds what the first found.
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE {}('w', '{{60}}', '{{a}}', '{{9}}', 0, 1, 4, 1, '{{}}'{bounds})",
            text.name()
        );
        let mut trial = db.client.transaction().unwrap();
        let plan: Vec<String> = trial.query(&explain, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        trial.rollback().unwrap();
        let hits = plan.iter().find_map(|line| line.split_once("shared hit=")).unwrap().1;
        hits.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let whole = blocks(Text::Claim, "");
    let bounded = blocks(Text::ClaimFrom, ", '{NULL,2020-01-02,NULL}', '{0,0,0}'");
    old.batch_execute("COMMIT").unwrap();
    assert!(whole > 300, "the snapshot keeps them: {whole}");
    assert!(bounded < 60, "{bounded} blocks beside {whole}");
}
