-- job: one job, whatever has become of it.
--   $1 id bigint
-- Rows: at most one, with the columns of the view jobs.  Locks: none.  Index: live_pkey, finished_pkey, payload_pkey.
-- Written by hand, an id can be in both tables; then the job is the one that may still run.
SELECT j.* FROM {schema}.jobs j WHERE j.id = $1::bigint ORDER BY j.finished_at NULLS FIRST LIMIT 1
