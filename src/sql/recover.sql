-- recover: put jobs whose lease ran out back, or bury them, as the caller decided on what stale.sql found.
--   $1 ids bigint[]  $2 runs int[] (run_count as found)  $3 claimants text[]
--   $4 dead bool[]         bury it: the backstop is reached
--   $5 delay float8[]      seconds until it may run again (0: ready at once)
-- Rows: id, kind, delay of the jobs that were still as found, still expired and not locked, and their status now:
--   0 pending  4 dead  5 cancelled: it was asked to be, whatever the caller has decided
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.  Index: live_pkey.
-- Writes journal (event 9), or finished (outcome 9).
-- least(), greatest(), coalesce() and ON CONFLICT: as in settle, for rows that were written by hand.
WITH held AS MATERIALIZED (
  SELECT l.id, l.claimed_by, v.delay,
         CASE WHEN l.cancel_requested_at IS NOT NULL THEN 5 WHEN v.dead THEN 4 END AS status,
         format('lease expired at %s, held by %s',
                to_char(l.claim_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), l.claimed_by) AS note
  FROM unnest($1::bigint[], $2::int[], $3::text[], $4::bool[], $5::float8[]) v (id, run_count, claimed_by, dead, delay)
  JOIN {schema}.live l ON l.id = v.id AND l.run_count = v.run_count AND l.claimed_by = v.claimed_by
    AND l.state + 0 = 2 AND l.claim_expires_at < now()
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE h.status IS NOT NULL AND j.id = h.id
  RETURNING j.*, h.status, h.delay, h.note),
stored AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    claimed_by, dedup_key, payload, carry, note, trace)
  SELECT id, coalesce(created_at, now()), coalesce(visible_at, now()), greatest(run_count, 1),
    greatest(least(failure_count, greatest(run_count, 1) - 1), 0) + 1, greatest(least(priority, 2), 0), status, 9, kind,
    claimed_by, dedup_key, payload, carry, note, trace FROM gone
  ON CONFLICT DO NOTHING
  RETURNING id),
back AS (
  UPDATE {schema}.live j SET
    state            = CASE WHEN h.delay > 0 THEN 1 ELSE 0 END,
    visible_at       = clock_timestamp() + make_interval(secs => h.delay),
    failure_count    = greatest(least(j.failure_count, greatest(j.run_count, 1) - 1), 0) + 1,
    claimed_by       = NULL,
    claim_expires_at = NULL
  FROM held h
  WHERE h.status IS NULL AND j.id = h.id
  RETURNING j.id, j.kind, j.run_count, h.claimed_by, h.delay, h.note),
noted AS (
  INSERT INTO {schema}.journal (job_id, run_no, event, claimed_by, note)
  SELECT id, greatest(run_count, 0), 9, claimed_by, note FROM back
  UNION ALL
  SELECT id, greatest(run_count, 0), 9, claimed_by, note FROM gone WHERE id NOT IN (SELECT id FROM stored)
  ON CONFLICT DO NOTHING)
SELECT id, kind, status::smallint AS status, delay FROM gone UNION ALL SELECT id, kind, 0::smallint, delay FROM back
