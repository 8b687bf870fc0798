-- held: every claim of a worker, whether it knows of it or not, to find claims whose reply was lost; and which of its
-- runs have completed their jobs by themselves, in transactions of their handlers.
--   $1 worker text  $2 ids bigint[]  $3 runs int[] (the runs that it knows of)
-- Rows: id, run_count, completed.  Locks: none.
-- Index: live_lease, all of it: proportional to the claims of all workers; finished_pkey, journal_run.
WITH known AS MATERIALIZED (SELECT * FROM unnest($2::bigint[], $3::int[]) r (id, run_count))
SELECT l.id, l.run_count, false AS completed FROM {schema}.live l WHERE l.state = 2 AND l.claimed_by = $1::text
UNION ALL
SELECT r.id, r.run_count, true FROM known r
JOIN {schema}.finished f ON f.id = r.id AND f.run_count = r.run_count AND f.claimed_by = $1::text AND f.outcome = 3
UNION ALL
SELECT r.id, r.run_count, true FROM known r
JOIN {schema}.journal e ON e.job_id = r.id AND e.run_no = r.run_count AND e.claimed_by = $1::text AND e.event = 3
