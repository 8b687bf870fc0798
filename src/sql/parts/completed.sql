-- What the worker $1 has completed, fenced by worker, id and run.
--   $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
--   $4 noted bigint[]  those of the ids that have a note or an attachment (fewer are less work)
--   $5 notes text[]  $6 attachments json[]   in the order of $4
-- ARRAY(...) makes the lock step run once, and a look-up of all TIDs together asks for the table's size once, not for each.
gone AS (
  DELETE FROM {schema}.live j
  WHERE j.ctid = ANY (ARRAY(
    SELECT l.ctid
    FROM unnest($2::bigint[], $3::int[]) r (id, run_count)
    JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
    FOR UPDATE OF l SKIP LOCKED))
  RETURNING j.id, j.created_at, j.visible_at, j.run_count, j.failure_count, j.priority, j.kind, j.claimed_by, j.dedup_key,
    j.payload, j.carry, j.trace, array_position($4::bigint[], j.id) AS noted),
done AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    claimed_by, dedup_key, payload, carry, note, attachment, trace)
  SELECT id, created_at, visible_at, run_count, failure_count, priority, 3, 3, kind,
    claimed_by, dedup_key, payload, carry, ($5::text[])[noted], ($6::json[])[noted], trace
  FROM gone
  RETURNING id, run_count)
