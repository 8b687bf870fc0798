-- settle_completed: settle for a batch of runs that all completed; a sixth less work for the server at 16 jobs. Fenced by worker,
-- id and run.
--   $1 worker text  $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
--   $4 notes text[]  $5 attachments json[]
-- Rows: job, run of what was accepted. What became of the others, settle tells: ask it with the same results.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs.  Writes finished.
WITH held AS MATERIALIZED (
  SELECT l.ctid AS tid, r.note, r.attachment
  FROM unnest($2::bigint[], $3::int[], $4::text[], $5::json[]) r (id, run_count, note, attachment)
  JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE j.ctid = h.tid RETURNING j.*, h.note, h.attachment)
INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
  claimed_by, dedup_key, payload, carry, note, attachment)
SELECT id, created_at, visible_at, run_count, failure_count, priority, 3, 3, kind,
  claimed_by, dedup_key, payload, carry, note, attachment
FROM gone
RETURNING id AS job, run_count AS run
