//! What the queue tells of its workers, and what the doctor finds on a server where it was planted.

use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use venturi::{Database, Severity};

use super::cluster::Cluster;
use super::front::{Front, Producer, WorkerSpec};
use super::migrating::Role;
use super::place::{eventually, for_a_while};
use super::probe::{Step, job};
use super::stage::Stage;

/// Longer than a transaction may be open before it is a finding, with room for a machine that is busy.
const LONG: Duration = Duration::from_secs(180);

/// The severity of a finding of this code, with what was seen.
pub(crate) fn found_by(queue: &dyn Producer, code: &str) -> Option<(Severity, String)> {
    let findings = queue.doctor().expect("a diagnosis");
    assert!(findings.iter().all(|it| !it.evidence.is_empty() && !it.remedy.is_empty()), "{findings:?}");
    findings.into_iter().find(|finding| finding.code == code).map(|finding| (finding.severity, finding.evidence))
}

fn found(stage: &Stage<'_>, code: &str) -> Option<(Severity, String)> {
    found_by(stage.queue(), code)
}

/// Plants something, and looks for what is found of it and was not before.
fn planted(stage: &Stage<'_>, code: &str, sql: &str) -> (Severity, String) {
    assert_eq!(found(stage, code), None, "before it is planted");
    stage.place.run(sql);
    found(stage, code).unwrap_or_else(|| panic!("{code} is not found"))
}

pub(crate) fn those_who_hold_claims_are_listed(front: &dyn Front) {
    let stage = Stage::new(front);
    assert!(stage.queue().workers().expect("an answer").is_empty());
    let spec = WorkerSpec { claimed_by: Some("ada".to_owned()), ..WorkerSpec::without_polls() };
    stage.work_idle(&spec);
    let held = stage.enqueue(job("held").run([Step::WaitForSignal, Step::Complete]));
    stage.wait_start("held", 1);
    let workers = stage.queue().workers().expect("an answer");
    let [worker] = workers.as_slice() else { panic!("{workers:?}") };
    assert!(worker.worker.starts_with("ada"), "{worker:?}");
    assert_eq!((worker.claims, worker.expired, worker.kinds.len()), (1, 0, 1));
    assert!(worker.lease_left.is_some(), "{worker:?}");
    assert_eq!(stage.queue().cancel(held).expect("an answer"), venturi::CancelOutcome::Requested);
    stage.place.wait_status(held, "completed");
}

pub(crate) fn the_doctor_finds_indexes_that_are_missing_or_invalid(front: &dyn Front) {
    let stage = Stage::new(front);
    let (severity, evidence) = planted(&stage, "index_missing", "DROP INDEX live_ready");
    assert_eq!((severity, evidence.as_str()), (Severity::Error, "not there: live_ready"));
    let spoil = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'live_lease'::regclass";
    let (severity, evidence) = planted(&stage, "index_invalid", spoil);
    assert_eq!((severity, evidence.as_str()), (Severity::Error, "not usable: live_lease"));
}

/// The evidence of an error.
fn error(stage: &Stage<'_>, code: &str) -> String {
    let (severity, evidence) = found(stage, code).unwrap_or_else(|| panic!("{code} is not found"));
    assert_eq!(severity, Severity::Error, "{code}: {evidence}");
    evidence
}

pub(crate) fn the_doctor_finds_a_schema_that_is_not_as_it_was_made(front: &dyn Front) {
    let stage = Stage::new(front);
    for code in ["schema_missing", "schema_changed", "schema_foreign", "table_unlogged", "row_security"] {
        assert_eq!(found(&stage, code), None, "before it is planted");
    }
    stage.place.run("ALTER TABLE live SET UNLOGGED; ALTER TABLE finished ENABLE ROW LEVEL SECURITY");
    assert!(error(&stage, "table_unlogged").ends_with(": live"));
    assert!(error(&stage, "row_security").ends_with(": finished"));
    stage.place.run(
        "DROP INDEX live_dedup; CREATE INDEX live_dedup ON live (kind, dedup_key) WHERE state < 2; \
         DROP INDEX journal_run; CREATE INDEX journal_run ON journal (job_id, run_no) WHERE claimed_by IS NOT NULL; \
         ALTER TABLE live ALTER COLUMN created_at DROP DEFAULT; \
         ALTER TABLE kind_state ALTER COLUMN paused_at TYPE text; \
         CREATE OR REPLACE FUNCTION current_trace() RETURNS text STABLE LANGUAGE sql AS 'SELECT NULL::text'; \
         ALTER FUNCTION enqueue RESET ALL",
    );
    let changed = error(&stage, "schema_changed");
    for one in [
        "index live_dedup of live is `btree (kind, dedup_key) WHERE (state < 2)`, not",
        "index journal_run of journal is `btree (job_id, run_no) WHERE (claimed_by IS NOT NULL)`, not `UNIQUE",
        "column created_at of live is `timestamp with time zone NOT NULL`, not",
        "column paused_at of kind_state is `text`, not `timestamp with time zone`",
        "function current_trace() is another one",
        "boolean) has the settings `none`, not `search_path=pg_catalog, (schema), pg_temp`",
    ] {
        assert!(changed.contains(one), "{one}: {changed}");
    }
    // An index may be tuned.
    stage.place.run("ALTER INDEX live_ready SET (fillfactor = 50)");
    assert!(!error(&stage, "schema_changed").contains("live_ready"));
    stage
        .place
        .run("DROP FUNCTION enqueue; DROP VIEW journal_entries; ALTER TABLE journal DROP CONSTRAINT journal_valid");
    let missing = error(&stage, "schema_missing");
    for one in ["function enqueue(text, json", "view journal_entries", "constraint journal_valid of journal"] {
        assert!(missing.contains(one), "{one}: {missing}");
    }
}

pub(crate) fn the_doctor_finds_what_others_have_put_on_our_tables(front: &dyn Front) {
    let stage = Stage::new(front);
    let severity = |planted: &str, one: &str| {
        stage.place.run(planted);
        let (severity, evidence) = found(&stage, "schema_foreign").unwrap_or_else(|| panic!("{one} is not found"));
        assert!(evidence.contains(one), "{one}: {evidence}");
        severity
    };
    stage.place.run("CREATE TABLE others (id int PRIMARY KEY, job bigint)");
    assert_eq!(found(&stage, "schema_foreign"), None, "a table beside ours is none of our business");
    assert_eq!(severity("CREATE INDEX slow ON live (lower(kind))", "index slow of live"), Severity::Note);
    stage.place.run("ALTER TABLE live ADD COLUMN number bigint GENERATED ALWAYS AS IDENTITY");
    assert_eq!(severity("ALTER TABLE live ADD COLUMN free int", "column number of live"), Severity::Note);
    for (other, undo, one) in [
        (
            "ALTER TABLE live ADD EXCLUDE USING btree (kind WITH =)",
            "ALTER TABLE live DROP CONSTRAINT live_kind_excl",
            "index live_kind_excl of live",
        ),
        (
            "ALTER TABLE live ADD COLUMN twice int GENERATED ALWAYS AS (run_count * 2) STORED",
            "ALTER TABLE live DROP COLUMN twice",
            "column twice of live",
        ),
        (
            "CREATE FUNCTION enqueue(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "DROP FUNCTION enqueue(text, text)",
            "function enqueue(text, text)",
        ),
    ] {
        assert_eq!(severity(other, one), Severity::Warning);
        stage.place.run(undo);
        assert_eq!(found(&stage, "schema_foreign").expect("the index").0, Severity::Note, "without {one}");
    }
    let domain = "CREATE DOMAIN needed AS int NOT NULL; ALTER TABLE live ADD COLUMN domain needed";
    assert_eq!(severity(domain, "column domain of live"), Severity::Error);
    stage.place.run("DROP DOMAIN needed CASCADE");
    let reference = "ALTER TABLE others ADD CONSTRAINT keeps FOREIGN KEY (job) REFERENCES live (id)";
    assert_eq!(severity(reference, "constraint keeps of live"), Severity::Warning);
    let spy = "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
               CREATE TRIGGER spy BEFORE INSERT ON live FOR EACH ROW EXECUTE FUNCTION spy()";
    assert_eq!(severity(spy, "trigger spy of live"), Severity::Error);
    stage.place.run("ALTER TABLE live DISABLE TRIGGER spy");
    assert_eq!(found(&stage, "schema_foreign").expect("the others").0, Severity::Warning, "it does nothing");
    assert_eq!(severity("ALTER TABLE live ADD COLUMN tenant int NOT NULL", "column tenant of live"), Severity::Error);
}

pub(crate) fn the_doctor_finds_tables_whose_rows_are_taken_for_ours(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run("CREATE TABLE every_one (job_id bigint NOT NULL); ALTER TABLE payload INHERIT every_one");
    let (severity, evidence) = found(&stage, "schema_foreign").expect("the parent");
    assert_eq!((severity, evidence.ends_with(": parent every_one of payload")), (Severity::Note, true), "{evidence}");
    stage.place.run("CREATE TABLE archive () INHERITS (live)");
    assert!(error(&stage, "schema_foreign").ends_with(": child archive of live"));
    stage.place.run("ALTER TABLE archive NO INHERIT live");
    assert_eq!(found(&stage, "schema_foreign").expect("the parent").0, Severity::Note, "as the remedy says");
}

pub(crate) fn the_doctor_finds_that_ids_will_be_given_again(front: &dyn Front) {
    let stage = Stage::new(front);
    let job = "INSERT INTO live (kind, payload) VALUES ('first', '1'), ('second', '1')";
    stage.place.run(job);
    let (severity, evidence) = planted(&stage, "sequence_behind", "ALTER SEQUENCE job_id RESTART");
    assert_eq!(severity, Severity::Error);
    assert!(evidence.contains("no id since") && evidence.ends_with("up to id 2"), "{evidence}");
    stage.place.run("SELECT nextval('job_id')");
    assert!(error(&stage, "sequence_behind").contains("job_id is at 1, "));
    let role = Role::new(&stage.place);
    stage.place.run(&format!(
        "GRANT USAGE ON SCHEMA \"{0}\" TO {1}; GRANT SELECT ON ALL TABLES IN SCHEMA \"{0}\" TO {1}",
        stage.place.schema, role.name
    ));
    let reader = front.connect(&role.database()).expect("connecting");
    assert_eq!(found_by(&*reader, "sequence_behind"), None, "who may not see the sequence is told all else");
    stage.place.run("SELECT setval('job_id', greatest((SELECT max(id) FROM live), (SELECT max(id) FROM finished)))");
    assert_eq!(found(&stage, "sequence_behind"), None, "as the remedy says");
    let entry = "INSERT INTO journal (job_id, run_no, event) VALUES (1, 0, 11)";
    stage.place.run(&format!("{entry}; {entry}"));
    assert_eq!(found(&stage, "sequence_behind"), None);
    stage.place.run("SELECT setval(pg_get_serial_sequence('journal', 'id'), 1)");
    assert!(error(&stage, "sequence_behind").ends_with("of the journal is at 1, and there are entries up to id 2"));
    stage.place.run("SELECT setval(pg_get_serial_sequence('journal', 'id'), (SELECT max(id) FROM journal))");
    assert_eq!(found(&stage, "sequence_behind"), None, "as the remedy says");
    assert_eq!(found(&stage, "schema_changed"), None);
    stage.place.run("ALTER SEQUENCE job_id MINVALUE -10 MAXVALUE 1000 INCREMENT -1 CYCLE CACHE 5");
    let evidence = error(&stage, "schema_changed");
    let changed = "sequence job_id is `bigint DESCENDING MAXVALUE 1000 CYCLE`, not `bigint`";
    assert_eq!(evidence, changed);
}

pub(crate) fn the_doctor_tells_of_tables_that_are_missing_although_it_needs_them(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run("DROP TABLE live CASCADE; ALTER TABLE journal RENAME TO journal_of_old");
    let missing = error(&stage, "schema_missing");
    for one in ["table live", "table journal", "view jobs"] {
        assert!(missing.contains(one), "{one}: {missing}");
    }
    assert!(!missing.contains("column"), "they are gone with their tables: {missing}");
    assert_eq!(found(&stage, "not_checked").expect("the facts are read from `live`").0, Severity::Note);
    assert_eq!(found(&stage, "listener_unreachable"), None, "that was looked at");
}

pub(crate) fn the_doctor_tells_of_what_has_the_names_of_ours_and_is_something_else(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run(
        "ALTER TABLE live RENAME TO whole; CREATE TABLE live (LIKE whole INCLUDING DEFAULTS) PARTITION BY LIST (state); \
         DROP VIEW jobs; CREATE TABLE jobs (id bigint NOT NULL)",
    );
    assert_eq!(
        error(&stage, "schema_replaced"),
        "partitioned table live is in the place of table live, table jobs is in the place of view jobs"
    );
    for code in ["schema_missing", "schema_changed", "schema_foreign", "index_missing"] {
        assert_eq!(found(&stage, code), None, "they are there, and all else of them is another matter");
    }
}

pub(crate) fn the_doctor_finds_that_autovacuum_is_off_for_live(front: &dyn Front) {
    let stage = Stage::new(front);
    let off = "ALTER TABLE live SET (autovacuum_enabled = no)";
    assert_eq!(planted(&stage, "autovacuum_off_live", off).0, Severity::Error);
}

pub(crate) fn the_doctor_finds_leases_that_ran_out(front: &dyn Front) {
    let stage = Stage::new(front);
    let expired = "INSERT INTO live (kind, payload, state, run_count, claimed_by, claim_expires_at) \
                   VALUES ('gone', '1', 2, 1, 'nobody', now() - interval '1 minute')";
    let (severity, evidence) = planted(&stage, "expired_leases", expired);
    assert_eq!(severity, Severity::Warning);
    assert!(evidence.starts_with("1 claimed"), "{evidence}");
    let workers = stage.queue().workers().expect("an answer");
    assert!(workers.iter().all(|worker| worker.expired == 1 && worker.lease_left.is_none()), "{workers:?}");
}

pub(crate) fn the_doctor_finds_kinds_that_nobody_serves(front: &dyn Front) {
    let stage = Stage::new(front);
    let waits = "INSERT INTO live (kind, payload, visible_at) VALUES ('orphan', '1', now() - interval '2 minutes')";
    let (severity, evidence) = planted(&stage, "kind_unserved", waits);
    assert_eq!(severity, Severity::Error);
    assert!(evidence.ends_with(": orphan") && evidence.contains("inferred"), "{evidence}");
    stage.queue().pause_kind("orphan").expect("an answer");
    assert_eq!(found(&stage, "kind_unserved"), None, "a kind that is paused is meant to wait");
}

pub(crate) fn the_doctor_tells_which_kinds_are_paused_with_jobs_that_are_due(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.queue().pause_kind("held").expect("an answer");
    let due = "INSERT INTO live (kind, payload) VALUES ('held', '1')";
    assert_eq!(
        planted(&stage, "kind_paused", due),
        (Severity::Note, "paused, with jobs that are due: held".to_owned())
    );
}

pub(crate) fn the_doctor_finds_that_live_has_lost_its_own_settings(front: &dyn Front) {
    let stage = Stage::new(front);
    let lost = "ALTER TABLE live RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)";
    assert_eq!(planted(&stage, "autovacuum_lazy", lost).0, Severity::Warning);
}

pub(crate) fn the_doctor_tells_of_a_schema_that_is_newer_than_the_code(front: &dyn Front) {
    let stage = Stage::new(front);
    let newer = "INSERT INTO migration (version, name, compatible_from) VALUES (1000, 'future', 1)";
    let (severity, evidence) = planted(&stage, "schema_newer", newer);
    assert!(severity == Severity::Note && evidence.starts_with("the schema has version 1000"), "{evidence}");
}

/// Of a role that sees no other's sessions, whose commits are not durable, and whose connections are used up.
pub(crate) fn the_doctor_finds_what_is_wrong_with_a_role(front: &dyn Front) {
    let stage = Stage::new(front);
    let role = Role::new(&stage.place);
    let (name, schema) = (&role.name, &stage.place.schema);
    stage.place.run(&format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA \"{schema}\" TO {name}"
    ));
    let queue = front.connect(&role.database()).expect("connecting");
    assert_eq!(found_by(&*queue, "sessions_hidden").expect("the test's own session is").0, Severity::Note);
    for code in ["synchronous_commit_off", "connections", "listener_unreachable"] {
        assert_eq!(found_by(&*queue, code), None, "before it is planted");
    }
    stage.place.run(&format!("ALTER ROLE {name} SET synchronous_commit = off"));
    let other = front.connect(&role.database()).expect("connecting");
    assert_eq!(found_by(&*other, "synchronous_commit_off").expect("it is off").0, Severity::Warning);
    stage.place.run(&format!("ALTER ROLE {name} CONNECTION LIMIT 2"));
    let (severity, evidence) = found_by(&*queue, "connections").expect("none is left");
    assert!(severity == Severity::Warning && evidence.contains("of 2 connections of this role"), "{evidence}");
    let (severity, evidence) = found_by(&*queue, "listener_unreachable").expect("there is none for it");
    assert!(severity == Severity::Error && evidence.contains("too many connections"), "{evidence}");
}

pub(crate) fn the_doctor_tries_whether_a_notification_is_heard(front: &dyn Front) {
    let stage = Stage::new(front);
    let told = |database: &Database, code| {
        found_by(&*front.connect(database).expect("connecting"), code).map(|(severity, _)| severity)
    };
    let database = stage.place.database();
    for code in ["listener_off", "listener_unreachable", "listener_silent", "pooler"] {
        assert_eq!(told(&database, code), None, "{code}");
    }
    assert_eq!(told(&database.clone().listen(false), "listener_off"), Some(Severity::Note));
    let astray = database.listen_on("host=127.0.0.1 port=1 user=nobody").expect("a proper DSN");
    assert_eq!(told(&astray, "listener_unreachable"), Some(Severity::Error));
}

fn server() -> Cluster {
    Cluster::start().expect("a server")
}

pub(crate) fn the_doctor_finds_what_a_server_was_told_to_leave_out_and_what_that_leaves_behind(front: &dyn Front) {
    let cluster = server();
    let stage = Stage::at(front, cluster.url());
    let codes = ["autovacuum_off", "autovacuum_lazy", "fsync_off", "dead_rows", "bloat"];
    codes.iter().for_each(|code| assert_eq!(found(&stage, code), None, "before it is planted"));
    for setting in ["autovacuum = off", "autovacuum_naptime = '10 min'", "fsync = off"] {
        cluster.psql(&format!("ALTER SYSTEM SET {setting}")).expect("a superuser");
    }
    cluster.psql("SELECT pg_reload_conf()").expect("a superuser");
    let severity = |code| eventually(code, || found(&stage, code)).0;
    assert_eq!(severity("autovacuum_off"), Severity::Error);
    assert_eq!(severity("fsync_off"), Severity::Error);
    assert_eq!(severity("autovacuum_lazy"), Severity::Warning);
    stage.place.run(
        "INSERT INTO live (kind, payload) SELECT 'gone', to_json(repeat('x', 990)) FROM generate_series(1, 60000)",
    );
    stage.place.run("DELETE FROM live");
    assert_eq!(severity("dead_rows"), Severity::Warning);
    assert_eq!(severity("bloat"), Severity::Warning);
    stage.place.run("VACUUM live");
    eventually("the dead rows are gone", || found(&stage, "dead_rows").is_none().then_some(()));
    assert_eq!(severity("bloat"), Severity::Warning, "the files keep their size");
    stage.place.run("VACUUM FULL live");
    assert_eq!(found(&stage, "bloat"), None, "as the remedy says");
}

pub(crate) fn the_doctor_finds_transactions_that_somebody_has_forgotten(front: &dyn Front) {
    let cluster = server();
    cluster.psql("ALTER SYSTEM SET max_prepared_transactions = 2").expect("a superuser");
    cluster.restart().expect("it starts again");
    let stage = Stage::at(front, cluster.url());
    let mut forgotten = stage.place.session();
    forgotten
        .batch_execute("BEGIN; CREATE TABLE a (); PREPARE TRANSACTION 'forgotten'; BEGIN; CREATE TABLE b ()")
        .expect("SQL");
    let codes = ["old_transaction", "prepared_transaction"];
    codes.iter().for_each(|code| assert_eq!(found(&stage, code), None, "they are young"));
    let deadline = Instant::now() + LONG;
    while codes.iter().any(|code| found(&stage, code).is_none()) {
        assert!(Instant::now() < deadline, "they are not found");
        for_a_while(Duration::from_secs(2), "a transaction has to be open for a minute");
    }
    let evidence = |code| found(&stage, code).expect("it was there before").1;
    assert!(evidence("prepared_transaction").contains("forgotten of venturi"));
    assert!(evidence("old_transaction").contains("(observer), idle in transaction"));
    forgotten.batch_execute("ROLLBACK").expect("SQL");
    forgotten.batch_execute("ROLLBACK PREPARED 'forgotten'").expect("SQL");
    codes.iter().for_each(|code| assert_eq!(found(&stage, code), None, "as the remedy says"));
}

/// A million of them, which is how far a standby may be behind.
const SPEND_NUMBERS: &str = "CREATE UNLOGGED TABLE spent (); DO $$ BEGIN FOR i IN 1..1000100 LOOP \
    BEGIN INSERT INTO spent DEFAULT VALUES; EXCEPTION WHEN others THEN NULL; END; END LOOP; END $$";

pub(crate) fn the_doctor_finds_a_standby_whose_query_holds_dead_rows_back(front: &dyn Front) {
    let cluster = server();
    let stage = Stage::at(front, cluster.url());
    let standby = cluster.start_standby().expect("a standby");
    stage.place.reconnect();
    standby.psql("ALTER SYSTEM SET hot_standby_feedback = on").expect("a superuser");
    standby.psql("ALTER SYSTEM SET wal_receiver_status_interval = 1").expect("a superuser");
    standby.psql("SELECT pg_reload_conf()").expect("a superuser");
    let mut query = Client::connect(&standby.url(), NoTls).expect("a connection");
    query.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").expect("SQL");
    let held = "SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL";
    eventually("the standby says what it needs", || (stage.place.number(held) == 1).then_some(()));
    assert_eq!(found(&stage, "standby_feedback"), None, "it is not far behind");
    cluster.psql("ALTER SYSTEM SET synchronous_standby_names = ''").expect("a superuser");
    cluster.psql("SELECT pg_reload_conf()").expect("a superuser");
    stage.place.run(SPEND_NUMBERS);
    let (severity, evidence) = found(&stage, "standby_feedback").expect("it is far behind");
    assert!(severity == Severity::Warning && evidence.contains("transactions behind"), "{evidence}");
    query.batch_execute("ROLLBACK").expect("SQL");
    eventually("it has caught up", || found(&stage, "standby_feedback").is_none().then_some(()));
}

pub(crate) fn the_doctor_finds_a_slot_that_its_standby_has_left(front: &dyn Front) {
    let cluster = server();
    let stage = Stage::at(front, cluster.url());
    let standby = cluster.start_standby().expect("a standby");
    stage.place.reconnect();
    cluster.psql("SELECT pg_create_physical_replication_slot('left')").expect("a superuser");
    let follow = "primary_slot_name = 'left'\nhot_standby_feedback = on\nwal_receiver_status_interval = 1\n";
    let file = standby.folder().join("data/postgresql.auto.conf");
    let before = std::fs::read_to_string(&file).expect("the standby's settings");
    std::fs::write(&file, format!("{before}\n{follow}")).expect("the standby's settings");
    standby.restart().expect("it starts again");
    let held = "SELECT count(*) FROM pg_replication_slots WHERE xmin IS NOT NULL";
    eventually("the standby says what it needs", || (stage.place.number(held) == 1).then_some(()));
    assert_eq!(found(&stage, "replication_slot"), None, "it is in use");
    cluster.psql("ALTER SYSTEM SET synchronous_standby_names = ''").expect("a superuser");
    cluster.psql("SELECT pg_reload_conf()").expect("a superuser");
    standby.stop_fast().expect("it stops");
    let (severity, evidence) = eventually("the slot is found", || found(&stage, "replication_slot"));
    assert!(severity == Severity::Warning && evidence.contains("left (nobody uses it"), "{evidence}");
}
