-- journal: a job's entries in order, one page of them.
--   $1 id bigint     the job
--   $2 after bigint  the entry after which the page begins (0: from the first one on)
--   $3 most int      rows
-- Rows: entry bigint (NULL: the job's end, which is the last), run_no, event, at, claimed_by, note, attachment.
-- Locks: none.  Index: journal_pkey, finished_pkey.
-- The order is the one in which they were written; instants may be equal, and a clock may be set back.
(SELECT e.id AS entry, e.run_no, e.event, e.at, e.claimed_by, e.note, e.attachment
 FROM {schema}.journal e
 WHERE e.job_id = $1::bigint AND e.id > $2::bigint
 ORDER BY e.job_id, e.id
 LIMIT $3::int)
UNION ALL
SELECT NULL, f.run_count, f.outcome, f.finished_at, f.claimed_by, f.note, f.attachment
FROM {schema}.finished f
WHERE f.id = $1::bigint
ORDER BY entry NULLS LAST
LIMIT $3::int
