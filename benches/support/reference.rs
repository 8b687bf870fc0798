//! What one would write by hand for speed: one table, batches, prepared statements, nothing else.
//!
//! It keeps finished jobs, as the queue does, and has a lease that somebody could act upon. It has no retries, no
//! journal, no notifications, no shutdown, and it loses a whole batch to one bad row.

use postgres::Client;
use postgres::types::Json;

use super::Result;
use super::fronts::{Nothing, each_on_a_thread};
use super::server::Server;
use super::settings::Case;
use super::tally::Tally;

pub(crate) const SCHEMA: &str = "throughput_reference";

const TABLE: &str = "
DROP SCHEMA IF EXISTS throughput_reference CASCADE;
CREATE SCHEMA throughput_reference;
CREATE TABLE throughput_reference.jobs (
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
CREATE INDEX ON throughput_reference.jobs (kind, priority, id) WHERE status = 'pending';";

/// By priority and age; the order also keeps the planner on the partial index, away from the finished jobs.
const CLAIM: &str = "
UPDATE throughput_reference.jobs SET
  status = 'claimed', claimed_by = $1, claim_expires_at = now() + interval '15 min', run_count = run_count + 1
WHERE id = ANY (ARRAY(
  SELECT id FROM throughput_reference.jobs
  WHERE status = 'pending' AND kind = $2
  ORDER BY priority, id
  LIMIT $3
  FOR UPDATE SKIP LOCKED))
RETURNING id, payload";

const SETTLE: &str = "
UPDATE throughput_reference.jobs SET status = 'done', finished_at = now()
WHERE id = ANY ($1) AND claimed_by = $2";

/// The planner settings of the queue's own connections.
const SESSION: &str = "
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off;";

const KIND: &str = "nothing";

pub(crate) fn fill(server: &Server, jobs: usize) -> Result<()> {
    let mut client = server.connect()?;
    client.batch_execute(TABLE)?;
    let sql = "INSERT INTO throughput_reference.jobs (kind, payload) SELECT $1, $2 FROM generate_series(1, $3)";
    client.execute(sql, &[&KIND, &Json(Nothing::new()), &i32::try_from(jobs)?])?;
    Ok(())
}

pub(crate) fn drain(server: &Server, case: Case, tally: &Tally) -> Result<()> {
    each_on_a_thread(case.connections, || drain_one(server.connect()?, case.concurrency, tally))
}

fn drain_one(mut client: Client, at_once: usize, tally: &Tally) -> Result<()> {
    client.batch_execute(SESSION)?;
    let (claim, settle) = (client.prepare(CLAIM)?, client.prepare(SETTLE)?);
    let me = format!("{:?}", std::thread::current().id());
    let limit = i64::try_from(at_once)?;
    loop {
        let rows = client.query(&claim, &[&me, &KIND, &limit])?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            let Json(job) = row.try_get::<_, Json<Nothing>>(1)?;
            std::hint::black_box(job);
            ids.push(row.try_get(0)?);
            tally.count();
        }
        client.execute(&settle, &[&ids, &me])?;
    }
}
