-- requeue: make finished jobs pending again; in one transaction with lock_keys, which comes first.
--   $1 ids bigint[]  $2 statuses smallint[] (those that may be touched: 3 completed, 4 dead, 5 cancelled)
-- The job keeps its number, age, runs and priority. It has no failures any more, and its carry only if it did not complete.
-- Rows: one per id: job, kind, answer
--   0 requeued   1 not finished   2 not there
--   3 conflict: the job `other` is pending with the same kind and dedup key; or comes back with this very statement
--   4 busy: somebody holds the row or its key, or has just changed it: again later
--   5 not touched, as its status is not among those that may be
-- Locks: FOR UPDATE SKIP LOCKED in the order of the ids; never waits.  Index: finished_pkey, live_pkey, live_dedup.
-- Writes live, and journal: the entry of the run that had been the last, and event 11.
WITH asked AS MATERIALIZED (SELECT DISTINCT i.id FROM unnest($1::bigint[]) i (id) ORDER BY i.id),
held AS MATERIALIZED (
  SELECT f.id, f.kind, f.dedup_key
  FROM asked a
  JOIN {schema}.finished f ON f.id = a.id AND f.status = ANY ($2::smallint[])
    AND f.id = ANY (nullif(current_setting('venturi.locked', true), '')::bigint[])
  WHERE NOT EXISTS (SELECT 1 FROM {schema}.live l WHERE l.id = f.id)
  FOR UPDATE OF f SKIP LOCKED),
fit AS MATERIALIZED (
  SELECT h.id, CASE WHEN h.dedup_key IS NOT NULL THEN coalesce(
    (SELECT l.id FROM {schema}.live l
     WHERE l.kind = h.kind AND l.dedup_key = h.dedup_key AND l.state < 2
     ORDER BY l.created_at, l.id LIMIT 1),
    min(h.id) OVER (PARTITION BY h.kind, h.dedup_key)) ELSE h.id END AS heir
  FROM held h),
gone AS (
  DELETE FROM {schema}.finished f USING fit h WHERE h.heir = h.id AND f.id = h.id RETURNING f.*),
back AS (
  INSERT INTO {schema}.live (id, created_at, visible_at, run_count, priority, kind, dedup_key, payload, carry, trace)
  SELECT id, created_at, clock_timestamp(), run_count, priority, kind, dedup_key, payload,
    CASE WHEN status > 3 THEN carry END, trace
  FROM gone),
noted AS (
  INSERT INTO {schema}.journal (job_id, run_no, event, at, claimed_by, note, attachment)
  SELECT g.id, g.run_count, e.event, e.at, e.claimed_by, e.note, e.attachment
  FROM gone g
  CROSS JOIN LATERAL (VALUES
    (1, g.outcome, g.finished_at, g.claimed_by, g.note, g.attachment),
    (2, 11, clock_timestamp(), NULL, NULL, NULL)) e (nth, event, at, claimed_by, note, attachment)
  ORDER BY g.id, e.nth
  -- Rows that were written by hand may have an entry for the run already; that one stays.
  ON CONFLICT DO NOTHING)
SELECT a.id AS job, f.kind,
  CASE WHEN h.heir = h.id THEN 0
       WHEN h.heir IS NOT NULL THEN 3
       WHEN f.id IS NOT NULL AND f.status = ANY ($2::smallint[]) THEN 4
       WHEN f.id IS NOT NULL THEN 5
       WHEN EXISTS (SELECT 1 FROM {schema}.live l WHERE l.id = a.id) THEN 1
       ELSE 2 END::smallint AS answer,
  h.heir AS other
FROM asked a
LEFT JOIN fit h ON h.id = a.id
LEFT JOIN {schema}.finished f ON f.id = a.id
