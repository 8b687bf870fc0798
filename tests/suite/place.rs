//! A schema of its own for each test, and a look at what is in it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postgres::types::ToSql;
use postgres::{Client, NoTls, Row, Statement};
use venturi::Database;

use super::cluster;
use super::interest::in_everything;

/// How soon something is looked at again that sends no signal; twice as long each time, since what has not come soon
/// takes long, and every look takes a part of the machine from what is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOK_AGAIN_AT_LAST: Duration = Duration::from_millis(80);

/// The server of the whole program.
pub(crate) fn url() -> String {
    cluster::shared_url().expect("a server")
}

/// A name that nobody else has.
pub(crate) fn fresh_name(what: &str) -> String {
    format!("{what}_{}_{:08x}", std::process::id(), RandomState::new().hash_one(what) & 0xffff_ffff)
}

/// Looks until there is something to see. For what the server knows; handlers are waited for in the lab.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (deadline, mut again) = (Instant::now() + super::PATIENCE, LOOK_AGAIN);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {:?}", super::PATIENCE);
        std::thread::sleep(again);
        again = (again * 2).min(LOOK_AGAIN_AT_LAST);
    }
}

/// Lets time pass in which something must not happen. `_why` says why so long: a machine that is too busy to do wrong in
/// that time lets it pass unseen, and never fails a test that is right.
pub(crate) fn for_a_while(time: Duration, _why: &str) {
    std::thread::sleep(time);
}

pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
    /// What the connections of this test's workers are called.
    pub(crate) name: String,
    session: Mutex<Session>,
}

/// The test's own connection, with each query that it has asked: most are asked again and again.
struct Session {
    client: Client,
    prepared: HashMap<String, Statement>,
}

impl Session {
    fn new(url: &str, schema: &str) -> Self {
        Self { client: observer(url, schema), prepared: HashMap::new() }
    }

    fn query(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).expect("the test's own queries are right");
                self.prepared.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        self.client.query(&statement, params).expect("the test's own queries are right")
    }
}

/// A job as the view `jobs` shows it.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub(crate) status: String,
    pub(crate) priority: i16,
    pub(crate) claimed_by: Option<String>,
    pub(crate) run_count: i32,
    pub(crate) failure_count: i32,
    pub(crate) payload: Option<String>,
    pub(crate) carry: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) attachment: Option<String>,
    /// Seconds from now.
    pub(crate) due_in: f64,
    pub(crate) lease_left: Option<f64>,
}

/// An entry of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) run: i32,
    pub(crate) event: String,
    pub(crate) claimed_by: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) attachment: Option<String>,
}

const JOB: &str = "SELECT status, priority, claimed_by, run_count, failure_count, payload::text AS payload, \
     carry::text AS carry, note, attachment::text AS attachment, \
     extract(epoch FROM visible_at - clock_timestamp())::float8 AS due_in, \
     extract(epoch FROM claim_expires_at - clock_timestamp())::float8 AS lease_left \
     FROM jobs WHERE id = $1";

const JOURNAL: &str = "SELECT run_no, event, claimed_by, note, attachment::text AS attachment \
     FROM journal_entries WHERE job_id = $1 ORDER BY at, id";

impl Place {
    /// A schema's name on this server; the schema itself is made by migrating.
    pub(crate) fn new(url: String) -> Self {
        let schema = fresh_name("suite");
        let session = Mutex::new(Session::new(&url, &schema));
        Self { url, name: schema.clone(), schema, session }
    }

    /// The database as workers are given it.
    pub(crate) fn database(&self) -> Database {
        self.database_named(&self.name)
    }

    /// The database under another name for the connections.
    pub(crate) fn database_named(&self, name: &str) -> Database {
        let mut config: tokio_postgres::Config = self.url.parse().expect("the harness writes proper DSNs");
        config.application_name(name);
        Database::from_config(config).and_then(|it| it.schema(&self.schema)).expect("a database")
    }

    /// Connects anew, after the server was away.
    pub(crate) fn reconnect(&self) {
        *self.own() = Session::new(&self.url, &self.schema);
    }

    /// A client of its own, in this schema; for transactions that are held open.
    pub(crate) fn session(&self) -> Client {
        observer(&self.url, &self.schema)
    }

    /// A client of its own that listens in this schema, and hears what is told for others.
    pub(crate) fn bystander(&self) -> Client {
        let mut session = self.session();
        session.batch_execute(&format!("LISTEN \"{}\"", self.schema)).expect("listening");
        session
    }

    /// One that is interested in everything itself.
    pub(crate) fn listener(&self) -> Client {
        let mut session = self.bystander();
        session.query("SELECT pg_advisory_lock_shared($1)", &[&in_everything(&self.schema)]).expect("a lock");
        session
    }

    /// The server's URL with one more option.
    pub(crate) fn url_with(&self, option: &str) -> String {
        format!("{}{}{option}", self.url, if self.url.contains('?') { '&' } else { '?' })
    }

    pub(crate) fn run(&self, sql: &str) {
        self.own().client.batch_execute(sql).expect("the test's own statements are right");
    }

    pub(crate) fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        self.own().query(sql, params)
    }

    /// The one value of a query.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.rows(sql, &[])[0].get(0)
    }

    /// What an `INSERT … RETURNING id` gives.
    pub(crate) fn insert(&self, sql: &str) -> i64 {
        self.number(sql)
    }

    pub(crate) fn job(&self, id: i64) -> JobRow {
        let rows = self.rows(JOB, &[&id]);
        let row = rows.first().unwrap_or_else(|| panic!("there is no job {id}"));
        JobRow {
            status: row.get("status"),
            priority: row.get("priority"),
            claimed_by: row.get("claimed_by"),
            run_count: row.get("run_count"),
            failure_count: row.get("failure_count"),
            payload: row.get("payload"),
            carry: row.get("carry"),
            note: row.get("note"),
            attachment: row.get("attachment"),
            due_in: row.get("due_in"),
            lease_left: row.get("lease_left"),
        }
    }

    pub(crate) fn journal(&self, id: i64) -> Vec<Entry> {
        let entry = |row: &Row| Entry {
            run: row.get("run_no"),
            event: row.get("event"),
            claimed_by: row.get("claimed_by"),
            note: row.get("note"),
            attachment: row.get("attachment"),
        };
        self.rows(JOURNAL, &[&id]).iter().map(entry).collect()
    }

    /// The events of a job's journal, oldest first.
    pub(crate) fn events(&self, id: i64) -> Vec<String> {
        self.journal(id).into_iter().map(|entry| entry.event).collect()
    }

    /// Whether the job was put back to wait, by the clock that put it back: it may be due by now.
    pub(crate) fn was_put_off(&self, id: i64) -> bool {
        let sql = "SELECT visible_at > (SELECT max(at) FROM journal WHERE job_id = live.id) FROM live WHERE id = $1";
        self.rows(sql, &[&id])[0].get(0)
    }

    /// Makes the job another worker's, for the next hour.
    pub(crate) fn give_away(&self, id: i64) {
        self.run(&format!(
            "UPDATE live SET claimed_by = 'another', run_count = run_count + 1, \
             claim_expires_at = now() + interval '1 hour' WHERE id = {id}"
        ));
    }

    /// Waits until the job is completed, dead, pending or claimed.
    pub(crate) fn wait_status(&self, id: i64, status: &str) -> JobRow {
        self.wait_job(id, status, |job| job.status == status)
    }

    pub(crate) fn wait_job(&self, id: i64, what: &str, wanted: impl Fn(&JobRow) -> bool) -> JobRow {
        let mut last = None;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(what, || {
                let job = self.job(id);
                let found = wanted(&job).then(|| job.clone());
                last = Some(job);
                found
            })
        }));
        found.unwrap_or_else(|_| panic!("job {id} is not {what}: {last:#?}, journal {:#?}", self.journal(id)))
    }

    /// Waits until no job is left that is not finished.
    pub(crate) fn wait_all_finished(&self) {
        eventually("every job is finished", || (self.number("SELECT count(*) FROM live") == 0).then_some(()));
    }

    /// Connections of this test's workers and queues, all but the ones that a test has of its own.
    pub(crate) fn backends(&self, condition: &str) -> Vec<i32> {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND ({condition})");
        self.rows(&sql, &[&self.name]).iter().map(|row| row.get(0)).collect()
    }

    /// When the latest statement of this test's workers began, in microseconds.
    pub(crate) fn last_statement(&self) -> i64 {
        self.number(
            "SELECT coalesce(max(extract(epoch FROM query_start) * 1000000), 0)::int8 FROM pg_stat_activity \
             WHERE application_name = current_schema()",
        )
    }

    /// Ends these connections, and waits until they are gone.
    pub(crate) fn terminate(&self, pids: &[i32]) {
        for pid in pids {
            self.rows("SELECT pg_terminate_backend($1)", &[pid]);
        }
        eventually("the backends are gone", || {
            let left = self.rows("SELECT 1 FROM pg_stat_activity WHERE pid = ANY ($1)", &[&pids]);
            left.is_empty().then_some(())
        });
    }

    pub(crate) fn wait_no_backends(&self) {
        eventually("no connection is left", || self.backends("true").is_empty().then_some(()));
    }

    /// Removes the schema, whatever state the test's own connection is in.
    pub(crate) fn clean_up(&self) {
        let clean_up = format!(
            "ROLLBACK; SET lock_timeout = '5s'; SET client_min_messages = warning; DROP SCHEMA IF EXISTS \"{}\" CASCADE",
            self.schema
        );
        if self.own().client.batch_execute(&clean_up).is_err() {
            // The connection may have been cut, or its server stopped.
            let Ok(mut client) = Client::connect(&self.url, NoTls) else { return };
            let _ = client.batch_execute(&clean_up);
        }
    }

    fn own(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn observer(url: &str, schema: &str) -> Client {
    let mut config: postgres::Config = url.parse().expect("the harness writes proper DSNs");
    config.application_name("observer");
    let mut client = config.connect(NoTls).expect("the server is there");
    client.batch_execute(&format!("SET search_path = \"{schema}\"")).expect("a search path");
    client
}
