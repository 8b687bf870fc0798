-- checkpoint: store a running job's carry now, so that the next run starts from it whatever becomes of this one.
--   $1 worker text   fence identity
--   $2 id bigint     the job
--   $3 run int       run_count as claimed
--   $4 carry json    the carry
-- Rows: the id, if the claim is still this run's; none if it is lost.
-- Locks: the row; waits for a renewal of it.  Index: live_pkey.
UPDATE {schema}.live j SET carry = $4::json
WHERE j.id = $2::bigint AND j.run_count = $3::int AND j.claimed_by = $1::text AND j.state + 0 = 2
RETURNING j.id
