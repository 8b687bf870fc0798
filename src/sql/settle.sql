-- settle: store the results of any number of finished runs, and say what became of each. Idempotent; fenced by worker,
-- id and run.
--   $1 worker text  $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
--   $4 outcomes smallint[]  3 completed 4 dead 5 cancelled | 6 retried 7 paused 8 released
--   $5 delays float8[]      seconds until it may run again (6, 7; 0: ready at once)
--   $6 notes text[]  $7 attachments json[]  $8 carries json[] (stored by 4, 6, 7; NULL: keep the stored one)
--   $9 discard bool         completed jobs are deleted, with payload and journal, instead of kept in finished
-- A job that was asked to be cancelled ends as cancelled, whatever its run says except completed.
-- Rows: one per run of the input: job, run, answer
--   0 accepted
--   1 refused: the claim is not this worker's any more, and its result was never stored
--   2 busy: still claimed by this worker, but somebody holds the row: again later
--   3 landed: exactly this result was stored by an earlier attempt, whose reply was lost
--   4 completed: the run has completed its job by itself, in a transaction of its handler; that stands
--   5 cancelled: instead of 0 or 3, when the job has ended as cancelled
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits, so there are no cycles with renew and recover.
-- Index: live_pkey, then TIDs; finished_pkey and journal_run only for what was not accepted.
-- Writes finished (the row is the last journal entry) or journal (earlier runs).
-- Trap: OFFSET 0 keeps the planner of PostgreSQL 18 from answering EXISTS by hashing all of a table.
-- Trap: a row that was changed between snapshot and lock, by a renewal, has a newer ctid, which this statement cannot
--   see: it stays locked, unchanged, and busy.
-- Rows that were written by hand may have as many failures as runs, an entry for the run already, or a number that is in
-- finished as well, or values that no CHECK lets in; least(), greatest(), coalesce() and ON CONFLICT keep such a job from
-- failing the others. What was there first stays, and the result of a job that was in finished already goes to the journal.
WITH result AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::int[], $4::smallint[], $5::float8[], $6::text[], $7::json[], $8::json[])
    r (id, run_count, outcome, delay, note, attachment, carry)),
held AS MATERIALIZED (
  SELECT l.ctid AS tid, r.delay, r.note, r.attachment, r.carry,
         CASE WHEN r.outcome > 3 AND l.cancel_requested_at IS NOT NULL THEN 5 ELSE r.outcome END AS event
  FROM result r
  JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE h.event <= 5 AND j.ctid = h.tid
  RETURNING j.*, h.event, h.note, h.attachment, h.carry AS new_carry),
stored AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    claimed_by, dedup_key, payload, carry, note, attachment, trace)
  SELECT id, coalesce(created_at, now()), coalesce(visible_at, now()), greatest(run_count, 1),
    greatest(least(failure_count, run_count - (event = 4)::int), 0) + (event = 4)::int,
    greatest(least(priority, 2), 0), event, event, kind, claimed_by, dedup_key, payload, CASE event WHEN 4 THEN coalesce(new_carry, carry) ELSE carry END, note, attachment,
    trace
  FROM gone WHERE event > 3 OR NOT $9::bool
  ON CONFLICT DO NOTHING
  RETURNING id),
bodies AS (
  DELETE FROM {schema}.payload p USING gone g WHERE $9::bool AND g.event = 3 AND p.job_id = g.id),
entries AS (
  DELETE FROM {schema}.journal e USING gone g WHERE $9::bool AND g.event = 3 AND e.job_id = g.id),
back AS (
  UPDATE {schema}.live j SET
    state            = CASE WHEN h.event < 8 AND h.delay > 0 THEN 1 ELSE 0 END,
    visible_at       = clock_timestamp() + make_interval(secs => CASE WHEN h.event < 8 THEN h.delay ELSE 0 END),
    failure_count    = greatest(least(j.failure_count, j.run_count - (h.event = 6)::int), 0) + (h.event = 6)::int,
    carry            = CASE WHEN h.event < 8 THEN coalesce(h.carry, j.carry) ELSE j.carry END,
    claimed_by       = NULL,
    claim_expires_at = NULL
  FROM held h
  WHERE h.event >= 6 AND j.ctid = h.tid
  RETURNING j.id, j.run_count, h.event, h.note, h.attachment),
noted AS (
  INSERT INTO {schema}.journal (job_id, run_no, event, claimed_by, note, attachment)
  SELECT id, greatest(run_count, 0), event, $1::text, note, attachment FROM back
  UNION ALL
  SELECT id, greatest(run_count, 0), event, $1::text, note, attachment FROM gone
  WHERE (event > 3 OR NOT $9::bool) AND id NOT IN (SELECT id FROM stored)
  ON CONFLICT DO NOTHING)
SELECT r.id AS job, r.run_count AS run, coalesce(
  CASE WHEN (r.id, r.run_count) IN (SELECT id, run_count FROM gone WHERE event = 5) THEN 5
       WHEN (r.id, r.run_count) IN (SELECT id, run_count FROM gone UNION ALL SELECT id, run_count FROM back) THEN 0
       WHEN EXISTS (
         SELECT 1 FROM {schema}.live l
         WHERE l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2 OFFSET 0) THEN 2
  END,
  (SELECT CASE WHEN f.outcome = 5 AND r.outcome > 3 THEN 5 WHEN f.outcome = r.outcome THEN 3 WHEN f.outcome = 3 THEN 4 END
   FROM {schema}.finished f WHERE f.id = r.id AND f.run_count = r.run_count AND f.claimed_by = $1::text),
  (SELECT CASE WHEN e.event = 5 AND r.outcome > 3 THEN 5 WHEN e.event = r.outcome THEN 3 WHEN e.event = 3 THEN 4 END
   FROM {schema}.journal e WHERE e.job_id = r.id AND e.run_no = r.run_count AND e.claimed_by = $1::text),
  -- Nothing is left of a job that was discarded.
  CASE WHEN $9::bool AND r.outcome = 3 AND NOT EXISTS (SELECT 1 FROM {schema}.live l WHERE l.id = r.id OFFSET 0)
         AND NOT EXISTS (SELECT 1 FROM {schema}.finished f WHERE f.id = r.id OFFSET 0) THEN 3 END,
  1)::smallint AS answer
FROM result r
