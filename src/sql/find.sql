-- find: the newest jobs that fit, among the `look` newest rows of each table below an id.
--   $1 statuses smallint[]      0 pending, 2 claimed, 3 completed, 4 dead, 5 cancelled
--   $2 before bigint            only jobs with a smaller id
--   $3 kind text                NULL: any
--   $4 dedup_key text           NULL: any or none
--   $5 created_from float8  $6 created_until float8    seconds since 1970; the end is not part of it; infinite: no bound
--   $7 finished_from float8  $8 finished_until float8  likewise; with a bound only finished jobs fit
--   $9 look int                 how many rows of each table are looked at, at most
--   $10 most int                how many jobs are returned, at most
--   $11 content bool            with payload, carry and attachment
-- Rows: the jobs that fit, highest id first, with the columns of the view jobs, and
--   floor bigint   jobs below this id were not looked at (NULL: there are none); one row with nothing else if none fits
-- Locks: none.  Index: live_pkey; finished_pkey, or finished_failed when no completed jobs are wanted; payload_pkey.
-- Written by hand, an id can be in both tables; it is listed once, and as live if that fits.
-- An id never changes and tells two jobs apart, so pages by id neither skip nor repeat a job that moves between tables.
WITH look AS MATERIALIZED (
  SELECT w.id, w.part,
    w.status = ANY ($1::smallint[]) AND w.kind = coalesce($3::text, w.kind)
    AND ($4::text IS NULL OR w.dedup_key = $4::text)
    AND ($5::float8 = '-Infinity' OR w.created_at >= to_timestamp($5::float8))
    AND ($6::float8 = 'Infinity' OR w.created_at < to_timestamp($6::float8))
    AND ($7::float8 = '-Infinity' OR w.finished_at >= to_timestamp($7::float8))
    AND ($8::float8 = 'Infinity' OR w.finished_at < to_timestamp($8::float8)) IS TRUE AS fits
  FROM (
    (SELECT l.id, 1 AS part, CASE l.state WHEN 2 THEN 2 ELSE 0 END AS status, l.kind, l.dedup_key, l.created_at,
            NULL::timestamptz AS finished_at
     FROM {schema}.live l
     WHERE $1::smallint[] && '{0,2}' AND l.id < $2::bigint
     ORDER BY l.id DESC LIMIT $9::int)
    UNION ALL
    (SELECT f.id, 2, f.status, f.kind, f.dedup_key, f.created_at, f.finished_at
     FROM {schema}.finished f
     WHERE $1::smallint[] && '{3}' AND f.id < $2::bigint
     ORDER BY f.id DESC LIMIT $9::int)
    UNION ALL
    (SELECT f.id, 3, f.status, f.kind, f.dedup_key, f.created_at, f.finished_at
     FROM {schema}.finished f
     WHERE $1::smallint[] && '{4,5}' AND NOT $1::smallint[] && '{3}' AND f.status > 3 AND f.id < $2::bigint
     ORDER BY f.id DESC LIMIT $9::int)) w),
floor AS MATERIALIZED (
  SELECT max(p.lowest) AS id
  FROM (SELECT min(l.id) AS lowest FROM look l GROUP BY l.part HAVING count(*) >= $9::int) p),
page AS MATERIALIZED (
  SELECT l.id, min(l.part) AS part FROM look l WHERE l.fits AND l.id >= coalesce((SELECT f.id FROM floor f), l.id)
  GROUP BY l.id
  ORDER BY l.id DESC LIMIT $10::int)
SELECT j.id, j.kind, j.priority, j.status, j.created_at, j.visible_at, j.claim_expires_at, j.cancel_requested_at,
  j.finished_at, j.claimed_by, j.run_count, j.failure_count, j.dedup_key, j.outcome, j.note, j.trace,
  CASE WHEN $11::bool THEN j.payload END AS payload, CASE WHEN $11::bool THEN j.carry END AS carry,
  CASE WHEN $11::bool THEN j.attachment END AS attachment, f.id AS floor
FROM floor f
LEFT JOIN page p ON true
LEFT JOIN {schema}.jobs j ON j.id = p.id AND (j.finished_at IS NULL) = (p.part = 1)
ORDER BY j.id DESC
