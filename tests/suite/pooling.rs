//! Behind a pooler that lends connections for a transaction.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postgres::{Client, NoTls};
use tokio_postgres::config::Host;
use venturi::{CancelOutcome, Cleanup, Database, ErrorKind, JobFilter, JobStatus, RequeueOutcome, Severity};

use super::diagnosis::found_by;
use super::front::{Front, WorkerSpec, refusals};
use super::place::{self, Place, eventually, for_a_while, fresh_name};
use super::probe::{Kind, Manner, Step, job};
use super::stage::Stage;

/// How many connections the pooler has to the server; fewer than a test's clients, so that they take turns.
const SERVERS: usize = 3;

/// PgBouncer in transaction mode before the shared server, ended when this is dropped or the process is gone.
struct Pooler {
    port: u16,
    folder: PathBuf,
    guard: Child,
}

impl Pooler {
    /// Nothing where it is not installed: then a test has nothing to show.
    fn start(extra: &str) -> Option<Self> {
        let Some(program) = installed() else {
            eprintln!("SKIPPED: pgbouncer is not installed (Debian, Ubuntu: apt-get install pgbouncer)");
            return None;
        };
        // A port that is free now may be another's when the pooler gets to it.
        let pooler = (0..10).find_map(|_| Self::started(&program, extra));
        Some(pooler.expect("a port that stays free"))
    }

    /// Nothing if it has not found its port free.
    fn started(program: &Path, extra: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(fresh_name("pooler"));
        fs::create_dir(&folder).expect("a folder");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).expect("a port").port();
        let file = folder.join("pgbouncer.ini");
        let users = folder.join("users.txt");
        fs::write(&users, "\"anybody\" \"\"\n").expect("a file");
        fs::write(&file, settings(port, &format!("auth_file = {}\n{extra}", users.display()))).expect("a file");
        // It refuses to be root, and takes nothing from its parent's death.
        let guard = r#"if [ "$(id -u)" = 0 ]; then set -- "$1" -u nobody "$2"; fi; "$@" & pid=$!; read -r _; kill -INT $pid; wait $pid"#;
        let log = || fs::File::options().append(true).create(true).open(folder.join("log")).expect("a log");
        let mut command = Command::new("sh");
        command.args(["-c", guard, "sh"]).arg(program).arg(&file);
        command.stdin(Stdio::piped()).stdout(log()).stderr(log());
        let guard = command.spawn().expect("a shell");
        let pooler = Self { port, folder, guard };
        let listens = eventually("the pooler listens, or says why not", || {
            let log = pooler.log();
            [("process up", true), ("FATAL", false)].into_iter().find_map(|(word, it)| log.contains(word).then_some(it))
        });
        listens.then_some(pooler)
    }

    fn config(&self, name: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).user("anybody").dbname("jobs").application_name(name);
        config
    }

    fn database(&self, place: &Place) -> Database {
        Database::from_config(self.config(&place.name)).and_then(|it| it.schema(&place.schema)).expect("a database")
    }

    fn client(&self) -> Client {
        postgres::Config::from(self.config("observer")).connect(NoTls).expect("the pooler lets everybody in")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// What is left in the server's sessions when nobody uses them: settings, prepared statements, channels.
    fn assert_nothing_is_left_behind(&self) {
        let mut clients: Vec<_> = (0..SERVERS).map(|_| self.client()).collect();
        for client in &mut clients {
            // Each keeps its own until the end.
            client.batch_execute("BEGIN").expect("a transaction");
        }
        for client in &mut clients {
            let left = "SELECT (SELECT count(*) FROM pg_prepared_statements) \
                 + (SELECT count(*) FROM pg_listening_channels()) + (SELECT count(*) FROM pg_settings \
                 WHERE source = 'session' AND name LIKE ANY ('{enable_%,jit,%_timeout,search_path,plan_cache_mode}'))";
            let row = client.query_typed(left, &[]).expect("a look").remove(0);
            assert_eq!(row.get::<_, i64>(0), 0);
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        if std::thread::panicking() {
            eprintln!("the pooler said:\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file())
}

fn settings(port: u16, extra: &str) -> String {
    let server: tokio_postgres::Config = place::url().parse().expect("a proper DSN");
    let host = match server.get_hosts() {
        [Host::Tcp(name), ..] => name.clone(),
        #[cfg(unix)]
        [Host::Unix(folder), ..] => folder.display().to_string(),
        [] => panic!("a DSN names a host"),
    };
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text");
    format!(
        "[databases]\n\
         jobs = host={host} port={} dbname={} user={} password={}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\npool_mode = transaction\ndefault_pool_size = {SERVERS}\nmax_client_conn = 100\n{extra}\n",
        server.get_ports().first().copied().unwrap_or(5432),
        server.get_dbname().unwrap_or("venturi"),
        server.get_user().unwrap_or("venturi"),
        text(server.get_password()),
    )
}

/// A pooler, and a migrated schema behind it, whose workers poll; nothing where there is no pooler.
fn polling(front: &dyn Front) -> Option<(Pooler, Stage<'_>, Database)> {
    let pooler = Pooler::start("")?;
    let stage = Stage::bare(front, place::url());
    let database = pooler.database(&stage.place).pooled(true).listen(false);
    front.migrate(&database).expect("migrating");
    Some((pooler, stage, database))
}

pub(crate) fn over_a_pooler_everything_works_by_polling(front: &dyn Front) {
    let Some((pooler, stage, database)) = polling(front) else { return };
    let place = &stage.place;
    front.migrate(&database).expect("migrating again");
    let queues = [front.connect(&database), front.connect(&database)].map(|queue| queue.expect("connecting"));
    let spec = WorkerSpec { poll_max: Some(Duration::from_millis(200)), ..WorkerSpec::of(&[Kind::Plain]) };
    let workers = [(); 2].map(|()| stage.work_on(&spec, database.clone()));
    for nth in 0..20 {
        for queue in &queues {
            // Large payloads lie apart; failures go round once more.
            let job = job(nth.to_string()).with_filler(nth * 500).traced("over a pooler");
            queue
                .enqueue(if nth % 5 == 0 { job.run([Step::Fail("once".into())]).run([]) } else { job })
                .expect("stored");
        }
    }
    // So many are copied.
    let later = (0..2_000).map(|nth| job(nth.to_string()).of(Kind::Other).with_filler(nth % 2 * 2_000));
    queues[0].enqueue_many(Kind::Other, later.collect()).expect("copied");
    eventually("all are done", || (place.number("SELECT count(*) FROM live WHERE kind = 'plain'") == 0).then_some(()));
    assert_eq!(place.number("SELECT count(*) FROM jobs WHERE status = 'completed'"), 40);
    assert_eq!(place.number("SELECT count(*) FROM live WHERE kind = 'other'"), 2_000);
    assert!(stage.look(|book| book.runs.iter().all(|run| run.trace.as_deref() == Some("over a pooler"))));
    workers.iter().for_each(|worker| drop(worker.stop()));
    drop(queues);
    pooler.assert_nothing_is_left_behind();
}

/// What the others of these tests leave out: keys, the control of jobs, and what a handler asks for in mid-run.
pub(crate) fn over_a_pooler_jobs_are_merged_controlled_and_asked_about(front: &dyn Front) {
    let Some((pooler, stage, database)) = polling(front) else { return };
    let place = &stage.place;
    let queue = front.connect(&database).expect("connecting");
    let enqueue = |job| queue.enqueue(job).expect("stored").id.get();
    let keyed = |amount| job("keyed").keyed("k", Manner::SumAndCarry).amount(amount).with_filler(2_000);
    let merged = enqueue(keyed(1));
    assert_eq!([enqueue(keyed(2)), enqueue(keyed(3))], [merged; 2]);
    let many = (0..5).map(|nth| job(nth.to_string()).keyed(if nth < 3 { "k" } else { "l" }, Manner::Sum).amount(1));
    let many = queue.enqueue_many(Kind::Plain, many.collect()).expect("stored");
    assert_eq!(place.number("SELECT count(*) FROM live"), 2);
    assert!(many.iter().take(3).all(|it| it.id.get() == merged));
    assert_eq!(queue.cancel(merged).expect("an answer"), CancelOutcome::Cancelled);
    assert_eq!(queue.requeue(merged).expect("an answer"), RequeueOutcome::Requeued);
    assert!(queue.pause_kind(Kind::Plain.name()).expect("an answer"));
    assert_eq!(queue.paused_kinds().expect("an answer").len(), 1);
    assert!(queue.resume_kind(Kind::Plain.name()).expect("an answer"));
    queue.cancel_all(JobFilter::new().kind("plain")).expect("cancelling by filter");
    queue.requeue_all(JobFilter::new().status(JobStatus::Cancelled)).expect("requeueing by filter");
    let spec = WorkerSpec {
        poll_max: Some(Duration::from_millis(200)),
        backoff: Some((Duration::from_millis(10), Duration::from_millis(10))),
        ..WorkerSpec::default()
    };
    let worker = stage.work_on(&spec, database);
    let asking = job("asking").run([Step::Checkpoint, Step::Fail("once".into())]);
    let asking = enqueue(asking.run([Step::Recall(3), Step::Attach("a".into())]));
    let held = enqueue(job("held").run([Step::WaitForSignal, Step::Fail("no".into())]));
    stage.wait_start("held", 1);
    assert_eq!(queue.cancel(held).expect("an answer"), CancelOutcome::Requested);
    place.wait_status(held, "cancelled");
    for id in [asking, merged] {
        place.wait_status(id, "completed");
    }
    assert_eq!(queue.journal(asking, None).expect("a page").entries.len(), 2);
    assert!(queue.stats().expect("counts").kinds["plain"].finished_last_minute > 0);
    assert_eq!(worker.stop().late, 0);
    queue.cleanup(Cleanup::new().completed(Duration::ZERO).cancelled(Duration::ZERO)).expect("cleaning up");
    drop(queue);
    pooler.assert_nothing_is_left_behind();
}

/// A request to cancel may reach somebody else's statement there, and PgBouncer 1.18 can die of one.
pub(crate) fn over_a_pooler_what_is_given_up_is_left_to_its_time_out(front: &dyn Front) {
    let Some((pooler, stage, database)) = polling(front) else { return };
    let place = &stage.place;
    let queue = front.connect(&database).expect("connecting");
    let brief = Some(Duration::from_millis(200));
    let spec = WorkerSpec { poll_max: brief, shutdown_timeout: brief, abort_grace: brief, ..WorkerSpec::default() };
    let worker = stage.work_on(&spec, database);
    queue.enqueue(job("a").run([Step::WaitForSignal])).expect("stored");
    stage.wait_start("a", 1);
    let mut client = place.session();
    let mut holder = client.transaction().expect("a transaction");
    holder.batch_execute("LOCK TABLE live").expect("the lock is free");
    let report = worker.stop();
    assert_eq!(report.left_claimed.len(), 1, "its result waits for the table: {report:?}");
    for_a_while(Duration::from_millis(300), "a worker that gives a connection up would ask at once");
    assert!(!pooler.log().contains("cancel request"));
    holder.commit().expect("no lock any more");
    queue.enqueue(job("b")).expect("stored");
}

/// There is no poll, so nothing but a notification or the end of another run can start a job.
pub(crate) fn a_worker_behind_a_pooler_listens_where_it_is_told_to(front: &dyn Front) {
    let Some(pooler) = Pooler::start("") else { return };
    let stage = Stage::bare(front, place::url());
    let place = &stage.place;
    let direct = place.url_with(&format!("application_name={}_direct", place.name));
    let database = pooler.database(place).pooled(true).listen_on(&direct).expect("a proper DSN");
    front.migrate(&database).expect("migrating");
    let queue = front.connect(&database).expect("connecting");
    let spec = WorkerSpec { lease: Some(Duration::from_secs(3)), ..WorkerSpec::without_polls() };
    let worker = stage.work_on(&spec, database);
    let direct = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}_direct' AND query LIKE '%LISTEN%'",
        place.name
    );
    eventually("the worker listens", || (place.number(&direct) == 1).then_some(()));
    let enqueue = |job| queue.enqueue(job).expect("stored").id.get();
    let id = enqueue(job("a"));
    place.wait_status(id, "completed");
    let id = enqueue(job("b").waiting("the lease has been renewed"));
    let expiry =
        || place.number(&format!("SELECT extract(epoch FROM claim_expires_at)::bigint FROM live WHERE id = {id}"));
    place.wait_status(id, "claimed");
    let first = expiry();
    eventually("the lease is renewed", || (expiry() > first).then_some(()));
    stage.open_all();
    assert_eq!(place.wait_status(id, "completed").run_count, 1);
    worker.stop();
    drop(queue);
    pooler.assert_nothing_is_left_behind();
}

/// Here each transaction's end takes away what is prepared, as when every transaction gets another connection.
pub(crate) fn a_pooler_that_was_not_expected_is_named_in_the_error(front: &dyn Front) {
    let Some(pooler) = Pooler::start("server_reset_query = DISCARD ALL\nserver_reset_query_always = 1") else { return };
    let stage = Stage::bare(front, place::url());
    let place = &stage.place;
    front.migrate(&place.database()).expect("migrating");
    let database = pooler.database(place);
    let error = front.connect(&database).and_then(|queue| queue.enqueue(job("a"))).expect_err("nothing stays prepared");
    assert!(error.to_string().contains("Database::pooled(true)"), "{error}");
    let queue = front.connect(&database.pooled(true)).expect("connecting");
    queue.enqueue(job("a")).expect("stored");
}

pub(crate) fn the_doctor_tells_of_a_pooler_that_was_not_expected(front: &dyn Front) {
    let Some(pooler) = Pooler::start("") else { return };
    let stage = Stage::new(front);
    let place = &stage.place;
    // So that the pooler has a connection that is older than any of ours.
    let mut early = pooler.client();
    let age = "SELECT extract(epoch FROM clock_timestamp() - backend_start)::float8 FROM pg_stat_activity \
               WHERE pid = pg_backend_pid()";
    eventually("the pooler's connection is old", || {
        (early.query_typed(age, &[]).expect("an answer")[0].get::<_, f64>(0) > 3.0).then_some(())
    });
    drop(early);
    let told = |database: &Database| {
        let queue = front.connect(database).expect("connecting");
        ["listener_silent", "pooler"].map(|code| found_by(&*queue, code).map(|(severity, _)| severity))
    };
    let database = pooler.database(place);
    assert_eq!(told(&database), [Some(Severity::Warning); 2]);
    let told_so = database.pooled(true).listen_on(&place.url).expect("a proper DSN");
    assert_eq!(told(&told_so), [None; 2], "past the pooler it hears");
}

pub(crate) fn what_a_pooler_does_not_let_in_is_an_error_that_says_so(front: &dyn Front) {
    let Some(pooler) = Pooler::start("") else { return };
    let stage = Stage::bare(front, place::url());
    let place = &stage.place;
    let with = |change: &dyn Fn(&mut tokio_postgres::Config)| {
        let mut config = pooler.config(&place.name);
        change(&mut config);
        Database::from_config(config).expect("a database").pooled(true)
    };
    let options = with(&|config| {
        config.options("-c geqo=off");
    });
    refused(front, &options, &["unsupported startup parameter", "leave that option out"]);
    let missing = with(&|config| {
        config.dbname("atlantis");
    });
    refused(front, &missing, &["no such database"]);
}

fn refused(front: &dyn Front, database: &Database, words: &[&str]) {
    for error in refusals(front, database) {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}
