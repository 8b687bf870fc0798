-- cancel: end pending jobs, and ask the runs of claimed ones to end.
--   $1 ids bigint[]  $2 pending bool  $3 claimed bool (which of the two may be touched)
-- Rows: one per id: job, answer
--   0 cancelled: it was pending, and has ended
--   1 requested: it is claimed; that it shall end is recorded, and settle and recover heed it
--   2 finished already   3 not there   4 busy: somebody holds the row, or has just changed it: again later
--   5 not touched, as its state is not among those that may be
-- Locks: FOR UPDATE SKIP LOCKED in the order of the ids; never waits.  Index: live_pkey, finished_pkey.
-- Writes finished (outcome 5; the row is the journal entry of the end).
-- Trap: a job that moves to finished between snapshot and lock is in neither table for this statement; live still shows
--   its old row then, hence busy.
WITH asked AS MATERIALIZED (SELECT DISTINCT i.id FROM unnest($1::bigint[]) i (id) ORDER BY i.id),
held AS MATERIALIZED (
  SELECT l.id, l.state
  FROM asked a
  JOIN {schema}.live l ON l.id = a.id AND CASE l.state WHEN 2 THEN $3::bool ELSE $2::bool END
  FOR UPDATE OF l SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.live j USING held h WHERE h.state < 2 AND j.id = h.id RETURNING j.*),
stored AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind,
    dedup_key, payload, carry, trace)
  SELECT id, coalesce(created_at, now()), coalesce(visible_at, now()), greatest(run_count, 0),
    greatest(least(failure_count, run_count), 0), greatest(least(priority, 2), 0), 5, 5, kind, dedup_key, payload, carry,
    trace
  FROM gone
  -- Written by hand, an id can be in both tables; such a job fails no other, and its end goes to the journal.
  ON CONFLICT DO NOTHING
  RETURNING id),
entered AS (
  INSERT INTO {schema}.journal (job_id, run_no, event)
  SELECT id, greatest(run_count, 0), 5 FROM gone WHERE id NOT IN (SELECT id FROM stored)),
noted AS (
  UPDATE {schema}.live j SET cancel_requested_at = clock_timestamp()
  FROM held h
  WHERE h.state = 2 AND j.id = h.id AND j.cancel_requested_at IS NULL)
SELECT a.id AS job,
  CASE WHEN h.state < 2 THEN 0
       WHEN h.state = 2 THEN 1
       WHEN l.id IS NOT NULL AND CASE l.state WHEN 2 THEN $3::bool ELSE $2::bool END THEN 4
       WHEN l.id IS NOT NULL THEN 5
       WHEN EXISTS (SELECT 1 FROM {schema}.finished f WHERE f.id = a.id) THEN 2
       ELSE 3 END::smallint AS answer
FROM asked a
LEFT JOIN held h ON h.id = a.id
LEFT JOIN {schema}.live l ON l.id = a.id
