-- settle_discarded: settle_completed for a worker that keeps no completed jobs. Fenced by worker, id and run.
--   $1 worker text  $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
-- Rows: job, run of what was accepted. What became of the others, settle tells: ask it with the same results.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs; payload_pkey for large payloads only; journal_pkey.
WITH held AS MATERIALIZED (
  SELECT l.ctid AS tid
  FROM unnest($2::bigint[], $3::int[]) r (id, run_count)
  JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE j.ctid = h.tid
  RETURNING j.id, j.run_count, j.payload IS NULL AS apart),
bodies AS (
  DELETE FROM {schema}.payload p USING gone g WHERE g.apart AND p.job_id = g.id),
entries AS (
  DELETE FROM {schema}.journal e USING gone g WHERE e.job_id = g.id)
SELECT id AS job, run_count AS run FROM gone
