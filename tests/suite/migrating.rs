//! Making the tables, and refusing those that this code cannot work with.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use venturi::{Database, Error, ErrorKind};

use super::cluster::Cluster;
use super::front::{Front, WorkerSpec};
use super::place::{self, Place, eventually, for_a_while, fresh_name};
use super::stage::Stage;

/// How many migrations there are.
fn steps() -> i64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    std::fs::read_dir(folder).expect("the migrations").count() as i64
}

/// What a worker, a queue and a migration say of this database, in this order.
fn refusals(front: &dyn Front, database: &Database) -> [Option<ErrorKind>; 3] {
    let running = front
        .start(&WorkerSpec::default(), database.clone(), Default::default())
        .expect("building connects to nothing");
    let worker = running.end_within(super::PATIENCE).err();
    let queue = front.connect(database).err();
    let migration = front.migrate(database).err();
    [worker, queue, migration].map(|error| error.map(|error| error.kind()))
}

fn said(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

pub(crate) fn migrating_again_changes_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let id = stage.enqueue(super::probe::job("kept"));
    for _ in 0..2 {
        front.migrate(&stage.place.database()).expect("migrating again");
    }
    assert_eq!(stage.place.number("SELECT count(*) FROM migration"), steps());
    assert_eq!(stage.place.job(id).status, "pending");
}

pub(crate) fn what_a_migration_would_do_is_told_before_it_is_done(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let database = stage.place.database();
    let pending = || front.pending_migrations(&database).expect("an answer");
    assert_eq!((pending().version, pending().steps.len() as i64), (0, steps()));
    front.migrate(&database).expect("migrating");
    assert_eq!((i64::from(pending().version), pending().steps.len()), (steps(), 0));
}

pub(crate) fn callers_who_migrate_at_once_take_turns(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let database = stage.place.database();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..6).map(|_| scope.spawn(|| front.migrate(&database))).collect();
        for caller in callers {
            caller.join().expect("no panic").expect("each of them is content");
        }
    });
    assert_eq!(stage.place.number("SELECT count(*) FROM migration"), steps());
    stage.work(&WorkerSpec::default());
    stage.assert_works("afterwards");
}

/// The lock that callers take turns by, as a session of the test holds it.
fn hold_migrations(place: &Place) -> postgres::Client {
    let mut session = place.session();
    let key = format!("venturi migrate {}", place.schema);
    session.query("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[&key]).expect("the lock");
    session
}

pub(crate) fn a_migration_that_is_cut_half_way_leaves_nothing_behind(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let holder = hold_migrations(&stage.place);
    thread::scope(|scope| {
        let database = stage.place.database();
        let caller = scope.spawn(move || front.migrate(&database));
        let waiting = eventually("the migration waits its turn", || {
            Some(stage.place.backends("wait_event_type = 'Lock'")).filter(|waiting| !waiting.is_empty())
        });
        stage.place.terminate(&waiting);
        let error = caller.join().expect("no panic").expect_err("its connection is gone");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    });
    drop(holder);
    assert_eq!(
        stage.place.number("SELECT count(*) FROM pg_namespace WHERE nspname = current_setting('search_path')"),
        0
    );
    front.migrate(&stage.place.database()).expect("nothing is in the way");
    stage.work(&WorkerSpec::default());
    stage.assert_works("afterwards");
}

pub(crate) fn a_schema_that_was_never_migrated_is_refused(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let database = stage.place.database();
    let running = front.start(&WorkerSpec::default(), database.clone(), stage.lab.clone()).expect("a worker");
    let error = running.end_within(super::PATIENCE).expect_err("there is nothing to work on");
    assert_eq!(error.kind(), ErrorKind::SchemaMissing);
    said(&error, &["migrate"]);
    let error = front.connect(&database).err().expect("there is nothing to enqueue to");
    assert_eq!(error.kind(), ErrorKind::SchemaMissing);
    // A schema without the tables is no better than none.
    stage.place.run(&format!("CREATE SCHEMA \"{}\"", stage.place.schema));
    let kinds = refusals(front, &database);
    assert_eq!(kinds, [Some(ErrorKind::SchemaMissing), Some(ErrorKind::SchemaMissing), None]);
}

/// Whoever is told to run `migrate` is told by it what is wrong.
pub(crate) fn a_schema_that_lacks_what_is_recorded_is_not_said_to_be_well(front: &dyn Front) {
    let stage = Stage::new(front);
    let database = stage.place.database();
    stage.place.run("ALTER TABLE finished DROP COLUMN attachment CASCADE; DROP FUNCTION enqueue");
    let damaged = || {
        let error = front.migrate(&database).expect_err("it is damaged");
        assert_eq!(error.kind(), ErrorKind::SchemaDamaged);
        assert_eq!(front.pending_migrations(&database).expect_err("as well").kind(), ErrorKind::SchemaDamaged);
        error
    };
    said(&damaged(), &["column attachment of finished", "function enqueue(text", "view jobs", "backup", "doctor"]);
    stage.place.run("DROP TABLE live CASCADE");
    let refused = stage.queue().enqueue(super::probe::job("lost")).expect_err("there is no such table");
    assert_eq!(refused.kind(), ErrorKind::SchemaMissing);
    said(&refused, &["`migrate`"]);
    said(&damaged(), &["table live", "backup", "doctor"]);
    stage.place.run("DROP TABLE migration");
    assert_eq!(front.connect(&database).err().expect("nothing is recorded").kind(), ErrorKind::SchemaMissing);
    said(&damaged(), &["no migration is recorded", "table finished", "another schema"]);
}

pub(crate) fn a_table_migration_of_somebody_else_is_told_of_at_once(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    stage.place.run(&format!("CREATE SCHEMA \"{0}\"; CREATE TABLE \"{0}\".migration (x int)", stage.place.schema));
    let database = stage.place.database();
    for error in super::front::refusals(front, &database) {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::SchemaDamaged, false), "{error}");
        said(&error, &["`migration` that is not venturi's", "another schema"]);
    }
    assert_eq!(front.pending_migrations(&database).expect_err("as well").kind(), ErrorKind::SchemaDamaged);
}

pub(crate) fn a_newer_schema_that_allows_it_is_worked_with(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run("INSERT INTO migration (version, name, compatible_from) VALUES (99, 'of tomorrow', 1)");
    front.migrate(&stage.place.database()).expect("there is nothing to do");
    stage.work(&WorkerSpec::default());
    stage.assert_works("as before");
    assert_eq!(stage.place.number("SELECT count(*) FROM migration"), steps() + 1);
}

pub(crate) fn a_newer_schema_that_does_not_is_refused(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.place.run("INSERT INTO migration (version, name, compatible_from) VALUES (99, 'of next year', 98)");
    let database = stage.place.database();
    assert_eq!(refusals(front, &database), [Some(ErrorKind::SchemaTooNew); 3]);
    let error = front.migrate(&database).expect_err("it is too new");
    said(&error, &["99", "update"]);
}

pub(crate) fn a_schema_may_have_any_name_that_postgresql_takes(front: &dyn Front) {
    for name in ["", "pg_mine", "a\nb", &"x".repeat(64)] {
        let error = Database::new(&place::url()).and_then(|it| it.schema(name)).expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    let mut stage = Stage::bare(front, place::url());
    stage.place.schema = format!("Über \"{}\" {{schema}} ' \\", fresh_name("it"));
    let quoted = stage.place.schema.replace('"', "\"\"");
    stage.place.run(&format!("SET search_path = \"{quoted}\""));
    front.migrate(&stage.place.database()).expect("it is quoted wherever it stands");
    stage.work_idle(&WorkerSpec::without_polls());
    stage.assert_works("quoted");
    stage.place.run(&format!("DROP SCHEMA \"{quoted}\" CASCADE"));
}

/// Makes a role without any right, and gives the database as that role sees it. The role is removed at the end.
pub(crate) struct Role<'a> {
    place: &'a Place,
    pub(crate) name: String,
}

impl<'a> Role<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        let name = fresh_name("role");
        place.run(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'"));
        Self { place, name }
    }

    pub(crate) fn database(&self) -> Database {
        let mut config: tokio_postgres::Config = self.place.url.parse().expect("a proper DSN");
        config.user(&self.name).password("secret").application_name(&self.place.name);
        Database::from_config(config).and_then(|it| it.schema(&self.place.schema)).expect("a database")
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        self.place.run(&format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name));
    }
}

pub(crate) fn a_role_that_may_not_create_is_told_so(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let role = Role::new(&stage.place);
    let error = front.migrate(&role.database()).expect_err("it may create nothing");
    assert_eq!(error.kind(), ErrorKind::Permission);
    said(&error, &["permission denied", "grant"]);
}

pub(crate) fn a_role_that_may_not_use_the_tables_is_told_so(front: &dyn Front) {
    let stage = Stage::new(front);
    let role = Role::new(&stage.place);
    assert_eq!(refusals(front, &role.database()), [Some(ErrorKind::Permission); 3]);
    let schema = &stage.place.schema;
    stage.place.run(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {0}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {0}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {0}",
        role.name
    ));
    // The rights on what is there will do: it creates nothing.
    front.migrate(&role.database()).expect("there is nothing to do");
    let id = stage.enqueue(super::probe::job("granted"));
    let worker = stage.work_on(&WorkerSpec::default(), role.database());
    stage.place.wait_status(id, "completed");
    worker.stop();
}

/// Our sessions say themselves what they need, whatever was set for the role.
pub(crate) fn a_role_with_strange_defaults_is_served_all_the_same(front: &dyn Front) {
    let stage = Stage::new(front);
    let (schema, role) = (&stage.place.schema, Role::new(&stage.place));
    stage.place.run(&format!(
        "GRANT USAGE, CREATE ON SCHEMA {schema} TO {0}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {0}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {0}; \
         ALTER ROLE {0} SET statement_timeout = '1ms'; ALTER ROLE {0} SET search_path = nowhere; \
         ALTER ROLE {0} SET default_transaction_isolation = 'serializable'; ALTER ROLE {0} SET DateStyle = 'SQL, DMY'; \
         ALTER ROLE {0} SET default_transaction_read_only = on",
        role.name
    ));
    stage.work_on(&WorkerSpec::default(), role.database());
    let queue = front.connect(&role.database()).expect("a queue");
    let id = queue.enqueue(super::probe::job("strange").failing(1)).expect("enqueueing").id.get();
    assert_eq!(stage.place.wait_status(id, "completed").run_count, 2);
}

/// A standby takes no writes; once it is promoted, the worker that waited for it goes to work.
pub(crate) fn a_server_that_takes_no_writes_is_refused_and_waited_for(front: &dyn Front) {
    let cluster = Cluster::start().expect("a server of its own");
    let stage = Stage::at(front, cluster.url());
    let id = stage.enqueue(super::probe::job("patient"));
    cluster.stop_fast().expect("stopping the server");
    let signal = cluster.folder().join("data/standby.signal");
    OpenOptions::new().create(true).write(true).truncate(false).mode(0o666).open(signal).expect("a signal file");
    thread::scope(|scope| {
        // The harness waits for a primary, which the promotion below makes of it.
        let restart = scope.spawn(|| cluster.restart());
        let standby = eventually("the standby answers", || {
            let is_standby = cluster.psql("SELECT pg_is_in_recovery()");
            is_standby.ok().filter(|answer| answer == "t")
        });
        let database = stage.place.database();
        let error = front.migrate(&database).expect_err("a standby takes no writes");
        assert_eq!((error.kind(), error.is_retryable(), standby.as_str()), (ErrorKind::ReadOnly, true, "t"), "{error}");
        assert_eq!(front.connect(&database).err().map(|error| error.kind()), Some(ErrorKind::ReadOnly));
        let worker = stage.work_on(&WorkerSpec::default(), database);
        for_a_while(std::time::Duration::from_millis(300), "it has found that nobody takes its writes");
        assert!(!worker.has_ended(), "it may become a primary");
        cluster.psql("SELECT pg_promote()").expect("promoting the standby");
        restart.join().expect("no panic").expect("a primary");
    });
    stage.place.reconnect();
    stage.place.wait_status(id, "completed");
}
