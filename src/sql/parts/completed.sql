-- What the worker $1 has completed, fenced by worker, id and run.
--   $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)  $4 notes text[]  $5 attachments json[]
held AS MATERIALIZED (
  SELECT l.ctid AS tid, r.note, r.attachment
  FROM unnest($2::bigint[], $3::int[], $4::text[], $5::json[]) r (id, run_count, note, attachment)
  JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE j.ctid = h.tid RETURNING j.*, h.note, h.attachment),
done AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    claimed_by, dedup_key, payload, carry, note, attachment, trace)
  SELECT id, created_at, visible_at, run_count, failure_count, priority, 3, 3, kind,
    claimed_by, dedup_key, payload, carry, note, attachment, trace
  FROM gone
  RETURNING id, run_count)
