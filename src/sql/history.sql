-- history: the newest entries of a job's journal, newest first. Only for jobs that are not finished.
--   $1 id bigint   the job
--   $2 most int    rows
-- Rows: run_no, event, at, claimed_by, note, attachment.
-- Locks: none.  Index: journal_pkey, backwards.
SELECT e.run_no, e.event, e.at, e.claimed_by, e.note, e.attachment
FROM {schema}.journal e
WHERE e.job_id = $1::bigint
ORDER BY e.job_id DESC, e.id DESC
LIMIT $2::int
