-- cleanup: delete jobs of one status that ended long ago, the oldest first, with their payloads and journals.
--   $1 status smallint (3 completed, 4 dead, 5 cancelled)  $2 age float8  seconds since the end, at least
--   $3 from float8   seconds since 1970: as far as an earlier batch came; -infinite: from the oldest one on
--   $4 most int      rows
-- Rows: one: deleted bigint, reached float8 (what `from` is for the next batch; NULL: nothing was deleted).
-- Locks: FOR UPDATE SKIP LOCKED; never waits.  Index: finished_age, then finished_pkey, payload_pkey, journal_pkey.
-- `from` steps over the index entries of rows that earlier batches have deleted, which an old snapshot keeps there.
WITH old AS MATERIALIZED (
  SELECT f.id
  FROM {schema}.finished f
  WHERE f.status = $1::smallint AND f.finished_at >= to_timestamp($3::float8)
    AND f.finished_at < now() - make_interval(secs => $2::float8)
  ORDER BY f.status, f.finished_at
  LIMIT $4::int
  FOR UPDATE SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.finished f USING old o WHERE f.id = o.id RETURNING f.id, f.finished_at),
bodies AS (
  DELETE FROM {schema}.payload p USING gone g WHERE p.job_id = g.id),
entries AS (
  DELETE FROM {schema}.journal e USING gone g WHERE e.job_id = g.id)
SELECT count(*) AS deleted, extract(epoch FROM max(g.finished_at))::float8 AS reached FROM gone g
