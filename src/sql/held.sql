-- held: every claim of a worker, whether it knows of it or not: to find claims whose reply was lost.
--   $1 worker text
-- Rows: id, run_count.  Locks: none.  Index: live_lease, all of it: proportional to the claims of all workers.
SELECT l.id, l.run_count FROM {schema}.live l WHERE l.state = 2 AND l.claimed_by = $1::text
