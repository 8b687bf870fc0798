-- renew: extend the leases of running jobs (own connection, never behind another statement).
--   $1 worker text  $2 ids bigint[] ascending  $3 runs int[]  $4 leases float8[] seconds
-- Rows: id, run_count, cancel_requested of the claims renewed. A missing one lost its claim, or its row is locked at this
--   moment, by its own settlement for example: held.sql tells which.
-- Locks: FOR NO KEY UPDATE SKIP LOCKED in the order of the input, never waits. (A plain UPDATE of several rows deadlocks
--   with settle of the same rows: 19 deadlocks in 6 s of a test, 0 with this.)  Index: live_pkey.
WITH held AS MATERIALIZED (
  SELECT l.id, r.lease
  FROM unnest($2::bigint[], $3::int[], $4::float8[]) r (id, run_count, lease)
  JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
  FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE {schema}.live j SET claim_expires_at = clock_timestamp() + make_interval(secs => h.lease)
FROM held h
WHERE j.id = h.id
RETURNING j.id, j.run_count, j.cancel_requested_at IS NOT NULL AS cancel_requested
