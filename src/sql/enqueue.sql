-- enqueue: insert jobs.
--   $1 kinds text[]  $2 priorities smallint[] (0 high, 1 normal, 2 low)  $3 payloads json[]
--   $4 dedup_keys text[] (NULL: none; duplicates are not looked for)
--   $5 delays float8[]     seconds from now (<= 0: ready)
--   $6 due timestamptz[]   instead of a delay (NULL: none; past: now, so ready)
--   $7 channel text        where workers hear of it when the transaction commits (NULL: they are told otherwise)
--   $8 kinds text          what they hear, without the time
--   $9 traces text[]       each the context of its trace (NULL: what the transaction says, if it says anything)
-- Rows: id, due_in (seconds; NULL: at once), in the order of the input.  Locks: none on other rows.
-- Index: writes live_*, payload_pkey.
-- A payload of more than 1024 bytes goes to the side table, which no claim and no settlement rewrites.
-- clock_timestamp(): in a long transaction of the caller now() would be its beginning.
WITH given AS MATERIALIZED (
  SELECT nextval(E'{schema_in_text}.job_id'::regclass) AS id, clock_timestamp() AS at,
         octet_length(t.payload::text) > 1024 AS large, t.*
  FROM unnest($1::text[], $2::smallint[], $3::json[], $4::text[], $5::float8[], $6::timestamptz[],
              $9::text[])
    t (kind, priority, payload, dedup_key, delay, due, trace)),
apart AS (
  INSERT INTO {schema}.payload (job_id, body) SELECT id, payload FROM given WHERE large)
INSERT INTO {schema}.live (id, created_at, visible_at, state, kind, priority, dedup_key, payload, trace)
SELECT id, at, CASE WHEN due IS NULL THEN at + make_interval(secs => greatest(delay, 0)) ELSE greatest(due, at) END,
       CASE WHEN coalesce(due > at, delay > 0) THEN 1 ELSE 0 END,
       kind, priority, dedup_key, CASE WHEN NOT large THEN payload END,
       coalesce(trace, (SELECT {schema}.current_trace()))
FROM given
RETURNING id, CASE WHEN visible_at <> created_at THEN extract(epoch FROM visible_at - created_at)::float8 END AS due_in,
  (SELECT pg_notify($7::text, format('%s;%s', $8::text, ceil(1000 * min(greatest(
     CASE WHEN due IS NULL THEN delay ELSE extract(epoch FROM due - at) END, 0)))::bigint))
   FROM given HAVING $7::text IS NOT NULL)
