-- What the worker $1 has completed, fenced by worker, id and run.
-- {locked} is parts/locked.sql.
--   $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
--   $4 noted bigint[]  those of the ids that have a note or an attachment (fewer are less work)
--   $5 notes text[]  $6 attachments json[]   in the order of $4
gone AS (
  DELETE FROM {schema}.live j
  WHERE j.ctid = ANY (ARRAY(
    {locked}))
  RETURNING j.id, j.created_at, j.visible_at, j.run_count, j.failure_count, j.priority, j.kind, j.claimed_by, j.dedup_key,
    j.payload, j.carry, j.trace, array_position($4::bigint[], j.id) AS noted),
done AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    claimed_by, dedup_key, payload, carry, note, attachment, trace)
  SELECT id, created_at, visible_at, run_count, failure_count, priority, 3, 3, kind,
    claimed_by, dedup_key, payload, carry, ($5::text[])[noted], ($6::json[])[noted], trace
  FROM gone
  RETURNING id, run_count)
