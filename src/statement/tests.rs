//! The statements against a server: that they fit their parameters, use their indexes, and do what their heads say.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the bans are for the library; a test may panic, and its threads are not the core's"
)]

mod claiming;
#[path = "../../tests/cluster/mod.rs"]
mod cluster;
mod completing;
mod controlling;
mod discarding;
mod enqueue_function;
mod enqueueing;
mod finding;
mod migrating;
mod model;
mod nonsense;
mod notifying;
mod plans;
mod recovering;
mod renewing;
mod rights;
mod settling;
mod storm;
mod texts;
mod trace;
mod waiting;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use postgres::types::FromSql;
use postgres::{Client, GenericClient, NoTls, Row};
use serde_json::value::RawValue;

use super::*;
use crate::Priority;
use crate::database::SchemaName;
use crate::filter::JobFilter;
use crate::job::{ClaimedJob, Json, RunId};
use crate::job_info::JobStatus;
use crate::migration;

const ME: &str = "here:1:me";
const OTHER: &str = "there:2:other";
const ALWAYS: f64 = 1e9;

/// A schema of its own in the shared database, and a session as the front-ends open them.
struct Db {
    client: Client,
    schema: SchemaName,
    texts: Texts,
}

impl Db {
    fn new() -> Self {
        let mut db = Self::without_schema();
        migrate(&mut db.client, &db.schema).unwrap();
        db
    }

    fn without_schema() -> Self {
        let name = format!("statement_{:016x}", RandomState::new().build_hasher().finish());
        let schema = schema_named(&name);
        Self { client: session(), texts: Texts::new(&schema), schema }
    }

    fn ask(&mut self, statement: &Statement) -> Reply {
        ask(&mut self.client, &self.texts, statement)
    }

    fn render(&self, sql: &str) -> String {
        render(sql, &self.schema)
    }

    fn run(&mut self, sql: &str) {
        let sql = self.render(sql);
        self.client.batch_execute(&sql).unwrap();
    }

    fn rows(&mut self, sql: &str) -> Vec<Row> {
        let sql = self.render(sql);
        self.client.query(&sql, &[]).unwrap()
    }

    fn value<T: for<'a> FromSql<'a>>(&mut self, sql: &str) -> T {
        self.rows(sql)[0].get(0)
    }

    fn enqueue(&mut self, rows: Vec<NewJob>) -> Vec<i64> {
        match self.ask(&enqueue(rows)) {
            Reply::Enqueued(ids) => ids.into_iter().map(|it| it.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn enqueue_one(&mut self, kind: &str) -> i64 {
        self.enqueue(vec![job(kind)])[0]
    }

    fn claim(&mut self, claim: Claim) -> ClaimReply {
        match self.ask(&Statement::Exchange { settle: None, claim: Some(claim) }) {
            Reply::Exchange { claim: Some(reply), .. } => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Enqueues a job of kind "a" and claims it.
    fn claimed_one(&mut self, worker: &str) -> RunId {
        let id = self.enqueue_one("a");
        self.claim_one(worker, id)
    }

    fn claim_one(&mut self, worker: &str, id: i64) -> RunId {
        let reply = self.claim(claim(worker));
        reply.jobs.iter().map(|job| job.id).find(|run| run.job == id).unwrap()
    }

    fn settle(&mut self, worker: &str, rows: Vec<Settlement>) -> Vec<(RunId, Settled)> {
        match self.ask(&settlement(worker, rows)) {
            Reply::Exchange { settled, claim: None } => settled,
            other => panic!("{other:?}"),
        }
    }

    fn settle_one(&mut self, worker: &str, row: Settlement) -> Settled {
        let id = row.id;
        let answers = self.settle(worker, vec![row]);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].0, id);
        answers[0].1
    }

    /// Lets the leases of all claims run out.
    fn expire(&mut self) {
        self.run("UPDATE {schema}.live SET claim_expires_at = now() - interval '5 s' WHERE state = 2");
    }

    fn inquire(&mut self, inquiry: Inquiry) -> Finding {
        match self.ask(&Statement::Inquiry(inquiry)) {
            Reply::Inquiry(found) => found,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a running job to be cancelled, as a queue would.
    fn request_cancel(&mut self, job: i64) {
        self.run(&format!("UPDATE {{schema}}.live SET cancel_requested_at = now() WHERE id = {job}"));
    }

    fn job(&mut self, id: i64) -> JobRow {
        let rows = self.rows(&format!(
            "SELECT status, run_count, failure_count, carry::text, claimed_by, outcome, note, attachment::text, \
             extract(epoch FROM visible_at - now())::float8 AS due_in FROM {{schema}}.jobs WHERE id = {id}"
        ));
        assert_eq!(rows.len(), 1, "job {id} is one row of the view");
        JobRow::from(&rows[0])
    }

    /// Run, event and note of each entry, in order of time.
    fn history(&mut self, id: i64) -> Vec<(i32, String, Option<String>)> {
        let sql = format!("SELECT * FROM {{schema}}.journal_entries WHERE job_id = {id} ORDER BY at, id");
        self.rows(&sql).iter().map(|row| (row.get("run_no"), row.get("event"), row.get("note"))).collect()
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // The session may be broken or in a failed transaction; a schema that stays behind does no harm.
        let _ = self.client.batch_execute(&render("ROLLBACK; DROP SCHEMA IF EXISTS {schema} CASCADE", &self.schema));
    }
}

#[derive(Debug)]
struct JobRow {
    status: String,
    runs: i32,
    failures: i32,
    carry: Option<String>,
    claimed_by: Option<String>,
    outcome: Option<String>,
    note: Option<String>,
    attachment: Option<String>,
    due_in: f64,
}

impl JobRow {
    fn from(row: &Row) -> Self {
        Self {
            status: row.get("status"),
            runs: row.get("run_count"),
            failures: row.get("failure_count"),
            carry: row.get("carry"),
            claimed_by: row.get("claimed_by"),
            outcome: row.get("outcome"),
            note: row.get("note"),
            attachment: row.get("attachment"),
            due_in: row.get("due_in"),
        }
    }

    fn is_due_in(&self, seconds: f64) -> bool {
        (self.due_in - seconds).abs() < 20.0
    }
}

fn schema_named(name: &str) -> SchemaName {
    SchemaName::new(name).unwrap()
}

fn session() -> Client {
    let mut client = Client::connect(&cluster::shared_url().unwrap(), NoTls).unwrap();
    client.batch_execute(SESSION).unwrap();
    client
}

/// As a front-end does it.
fn migrate(client: &mut Client, schema: &SchemaName) -> Result<usize, crate::Error> {
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute(&migration::lock(schema)).unwrap();
    transaction.batch_execute(&migration::bootstrap(schema)).unwrap();
    let rows = transaction.query(&migration::applied(schema), &[]).unwrap();
    let applied: Vec<(i32, i32)> = rows.iter().map(|row| (row.get("version"), row.get("compatible_from"))).collect();
    let (inventory, params) = migration::inventory(schema);
    let pieces = |transaction: &mut postgres::Transaction<'_>| {
        migration::pieces(transaction.query_typed(&inventory, &typed(&params)).unwrap())
    };
    let batches = migration::plan(schema, &applied, &pieces(&mut transaction)?)?;
    for batch in &batches {
        transaction.batch_execute(batch).unwrap();
    }
    migration::check_whole(&applied, &pieces(&mut transaction)?)?;
    transaction.commit().unwrap();
    Ok(batches.len())
}

fn try_ask(client: &mut impl GenericClient, texts: &Texts, statement: &Statement) -> Result<Reply, postgres::Error> {
    let mut transaction = client.transaction()?;
    let mut results = Vec::new();
    for Command { text, params, data } in statement.commands() {
        let sql = transaction.prepare(texts.sql(text))?;
        if let Some(data) = data {
            let mut writer = transaction.copy_in(&sql)?;
            writer.write_all(data.as_ref()).unwrap();
            writer.finish()?;
            results.push(Vec::new());
            continue;
        }
        let params: Vec<_> = params.iter().map(|param| param.as_sql()).collect();
        results.push(transaction.query(&sql, &params)?);
    }
    transaction.commit()?;
    Ok(match <[_; 1]>::try_from(results) {
        Ok([rows]) => taken_in(statement, rows),
        Err(results) => statement.read(&results).unwrap(),
    })
}

/// As a connection of our own reads what is one command.
fn taken_in(statement: &Statement, rows: Vec<Row>) -> Reply {
    let mut intake = Intake::new(statement);
    rows.into_iter().for_each(|row| intake.take(row));
    intake.end().unwrap()
}

fn ask(client: &mut impl GenericClient, texts: &Texts, statement: &Statement) -> Reply {
    try_ask(client, texts, statement).unwrap()
}

fn json(text: &str) -> Json {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn job(kind: &str) -> NewJob {
    NewJob {
        kind: kind.to_owned().into(),
        priority: Priority::Normal,
        payload: json("{}"),
        dedup_key: None,
        delay: 0.0,
        due_at: None,
        trace: None,
    }
}

fn enqueue(rows: Vec<NewJob>) -> Statement {
    Statement::Enqueue(Enqueue { calls: vec![NewJobs::new(rows)], channel: None })
}

/// All that there is of the kinds "a" and "b".
/// By a worker with room for all of its kinds.
fn survey_of(kinds: &[&'static str], worker: &str) -> Survey {
    let (kinds, open) = (kinds.to_vec(), kinds.to_vec());
    Survey { kinds, open, worker: worker.into(), look_back: ALWAYS, horizon: 1_000.0, skip: Vec::new() }
}

fn claim(worker: &str) -> Claim {
    Claim {
        durable: true,
        worker: worker.into(),
        kinds: vec!["a", "b"],
        leases: vec![60.0, 60.0],
        room: vec![1_000, 1_000],
        floor: 0,
        want: 1_000,
        spare: 4,
        look_back: ALWAYS,
        skip: Vec::new(),
        bounds: None,
    }
}

/// As deep as any.
fn find(filter: JobFilter, statuses: &[JobStatus]) -> Find {
    let content = !filter.without_content;
    Find { filter: filter.into(), statuses: statuses.to_vec(), below: i64::MAX, look: 20_000, most: 1_000, content }
}

fn ids(reply: &ClaimReply) -> Vec<i64> {
    reply.jobs.iter().map(|job| job.id.job).collect()
}

/// As an engine settles a batch in which all completed.
fn brief(rows: Vec<Settlement>, discard: bool) -> Statement {
    Statement::Exchange { settle: Some(Settle { worker: ME.into(), rows, discard, brief: true }), claim: None }
}

fn settlement(worker: &str, rows: Vec<Settlement>) -> Statement {
    Statement::Exchange {
        settle: Some(Settle { worker: worker.into(), rows, discard: false, brief: false }),
        claim: None,
    }
}

fn bare(id: RunId, outcome: Ending) -> Settlement {
    Settlement { id, outcome, delay: 0.0, note: None, attachment: None, carry: None }
}
