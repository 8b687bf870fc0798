//! What one would write by hand for speed: one table, prepared statements, nothing else.
//!
//! It keeps finished jobs, as the queue does, and has a lease that somebody could act upon. It has no retries, no
//! journal, no shutdown, and it loses a whole batch to one bad row.

use postgres::types::Json;
use postgres::{Client, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Result;
use super::server::Server;
use super::session;

pub(crate) const SCHEMA: &str = "reference";
/// Where [`Reference::insert`] tells of new jobs, if it does.
pub(crate) const CHANNEL: &str = "reference";
const KIND: &str = "nothing";

const TABLE: &str = "
CREATE SCHEMA reference;
CREATE TABLE reference.jobs (
  id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind             text        NOT NULL,
  priority         smallint    NOT NULL DEFAULT 1,
  status           text        NOT NULL DEFAULT 'pending',
  payload          json        NOT NULL,
  run_count        int         NOT NULL DEFAULT 0,
  created_at       timestamptz NOT NULL DEFAULT now(),
  claimed_by       text,
  claim_expires_at timestamptz,
  finished_at      timestamptz);
CREATE INDEX ON reference.jobs (kind, priority, id) WHERE status = 'pending';";

/// By priority and age; the order also keeps the planner on the partial index, away from the finished jobs.
const CLAIM: &str = "
UPDATE reference.jobs SET
  status = 'claimed', claimed_by = $1, claim_expires_at = now() + interval '15 min', run_count = run_count + 1
WHERE id = ANY (ARRAY(
  SELECT id FROM reference.jobs
  WHERE status = 'pending' AND kind = $2
  ORDER BY priority, id
  LIMIT $3
  FOR UPDATE SKIP LOCKED))
RETURNING id, payload";

const SETTLE: &str = "
UPDATE reference.jobs SET status = 'done', finished_at = now()
WHERE id = ANY ($1) AND claimed_by = $2";

const INSERT: &str = "INSERT INTO reference.jobs (kind, payload) VALUES ($1, $2) RETURNING id";

const INSERT_AND_NOTIFY: &str = "
WITH new AS (INSERT INTO reference.jobs (kind, payload) VALUES ($1, $2) RETURNING id)
SELECT id, pg_notify('reference', '') FROM new";

/// An empty table.
pub(crate) fn create(server: &Server) -> Result<()> {
    server.drop_schema(SCHEMA)?;
    Ok(server.connect()?.batch_execute(TABLE)?)
}

/// A filled table.
pub(crate) fn fill(server: &Server, jobs: usize, payload: &(impl Serialize + Sync + std::fmt::Debug)) -> Result<()> {
    create(server)?;
    let sql = "INSERT INTO reference.jobs (kind, payload) SELECT $1, $2 FROM generate_series(1, $3)";
    server.connect()?.execute(sql, &[&KIND, &Json(payload), &i32::try_from(jobs)?])?;
    Ok(())
}

/// One connection of it.
pub(crate) struct Reference {
    pub(crate) client: Client,
    claim: Statement,
    settle: Statement,
    insert: Statement,
    insert_and_notify: Statement,
    me: String,
}

impl Reference {
    pub(crate) fn connect(server: &Server) -> Result<Self> {
        let mut client = session::open(server)?;
        Ok(Self {
            claim: client.prepare(CLAIM)?,
            settle: client.prepare(SETTLE)?,
            insert: client.prepare(INSERT)?,
            insert_and_notify: client.prepare(INSERT_AND_NOTIFY)?,
            me: format!("{:?}", std::thread::current().id()),
            client,
        })
    }

    /// Takes up to `most` jobs.
    pub(crate) fn claim<T: DeserializeOwned>(&mut self, most: usize) -> Result<Vec<(i64, T)>> {
        let rows = self.client.query(&self.claim, &[&self.me, &KIND, &i64::try_from(most)?])?;
        let read = |row: &postgres::Row| Ok((row.try_get(0)?, row.try_get::<_, Json<T>>(1)?.0));
        rows.iter().map(read).collect()
    }

    pub(crate) fn settle(&mut self, ids: &[i64]) -> Result<()> {
        self.client.execute(&self.settle, &[&ids, &self.me])?;
        Ok(())
    }

    pub(crate) fn insert(&mut self, payload: &(impl Serialize + Sync + std::fmt::Debug), notify: bool) -> Result<i64> {
        let sql = if notify { &self.insert_and_notify } else { &self.insert };
        Ok(self.client.query_one(sql, &[&KIND, &Json(payload)])?.try_get(0)?)
    }
}
