-- job: one job, whatever has become of it.
--   $1 id bigint
-- Rows: at most one, with the columns of the view jobs.  Locks: none.  Index: live_pkey, finished_pkey, payload_pkey.
SELECT j.* FROM {schema}.jobs j WHERE j.id = $1::bigint
