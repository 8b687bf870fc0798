-- complete: settle one running job as completed, in the transaction of the application that holds the job's effects.
--   $1 worker text  $2 id bigint  $3 run int (run_count as claimed)  $4 note text  $5 attachment json
-- Rows: one: answer, as settle has them
--   0 accepted, once the transaction is committed
--   1 refused: the claim is not this run's any more; nothing is written
--   4 completed: this run did it before, in this transaction or in one that was committed; nothing is written
-- Locks: the row, to the end of the transaction; waits for whoever has it, which is a renewal of a few milliseconds.
--   Meanwhile renewals and recovery skip it.  Index: live_pkey; finished_pkey and journal_run only when not accepted.
-- greatest() and so on: as in settle, for rows that were written by hand.
-- clock_timestamp(): in a long transaction of the caller now() would be its beginning.
WITH gone AS (
  DELETE FROM {schema}.live j
  WHERE j.id = $2::bigint AND j.run_count = $3::int AND j.claimed_by = $1::text AND j.state + 0 = 2
  RETURNING j.*),
stored AS (
  INSERT INTO {schema}.finished (id, created_at, visible_at, finished_at, run_count, failure_count, priority, status,
    outcome, kind, claimed_by, dedup_key, payload, carry, note, attachment, trace)
  SELECT id, coalesce(created_at, now()), coalesce(visible_at, now()), clock_timestamp(), greatest(run_count, 1),
    greatest(least(failure_count, run_count), 0), greatest(least(priority, 2), 0), 3,
    3, kind, claimed_by, dedup_key, payload, carry, $4::text, $5::json, trace
  FROM gone
  ON CONFLICT DO NOTHING
  RETURNING id),
noted AS (
  INSERT INTO {schema}.journal (job_id, run_no, event, claimed_by, note, attachment)
  SELECT id, greatest(run_count, 0), 3, $1::text, $4::text, $5::json FROM gone WHERE id NOT IN (SELECT id FROM stored)
  ON CONFLICT DO NOTHING)
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM gone) THEN 0
  WHEN EXISTS (
    SELECT 1 FROM {schema}.finished f
    WHERE f.id = $2::bigint AND f.run_count = $3::int AND f.claimed_by = $1::text AND f.outcome = 3) THEN 4
  WHEN EXISTS (
    SELECT 1 FROM {schema}.journal e
    WHERE e.job_id = $2::bigint AND e.run_no = $3::int AND e.claimed_by = $1::text AND e.event = 3) THEN 4
  ELSE 1 END::smallint AS answer
