-- cancellations: which of these runs were asked to end?
--   $1 worker text  $2 ids bigint[]  $3 runs int[]
-- Rows: id, run_count.  Locks: none.  Index: live_pkey.
SELECT l.id, l.run_count
FROM unnest($2::bigint[], $3::int[]) r (id, run_count)
JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
WHERE l.cancel_requested_at IS NOT NULL
