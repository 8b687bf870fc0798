-- promote: make scheduled jobs ready whose time has come, and say when the next one is due.
--   $1 kinds text[]  $2 look_back float8 seconds (as stale.sql)  $3 most int  rows per kind and pass
-- Rows: one: promoted bigint (> 0: notify)
--   more_due bool      something due was left: above the limit (ask again at once) or locked by others (within 1 s)
--   next_due float8    seconds from now until the next one is due (NULL: none)
-- Locks: FOR NO KEY UPDATE SKIP LOCKED; never waits.  Index: live_scheduled (two probes per kind), live_pkey.
-- Trap: the times are subtracted as numbers, for a visible_at of 'infinity' must not fail the statement for everybody.
WITH due AS MATERIALIZED (
  SELECT d.id, d.nth
  FROM unnest($1::text[]) k (kind)
  CROSS JOIN LATERAL (
    SELECT s.id, row_number() OVER (ORDER BY s.kind, s.visible_at) AS nth FROM {schema}.live s
    WHERE s.state = 1 AND s.kind = k.kind
      AND s.visible_at >= coalesce(now() - make_interval(secs => $2::float8), '-infinity') AND s.visible_at <= now()
    ORDER BY s.kind, s.visible_at
    LIMIT $3::int + 1) d),
promoted AS (
  UPDATE {schema}.live j SET state = 0
  WHERE j.id = ANY (ARRAY(
      SELECT l.id FROM {schema}.live l
      WHERE l.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.nth <= $3::int))
        AND l.state + 0 = 1 AND l.visible_at <= now()
      FOR NO KEY UPDATE SKIP LOCKED))
    AND j.state + 0 = 1
  RETURNING j.id)
SELECT (SELECT count(*) FROM promoted) AS promoted,
       (SELECT count(*) FROM due) > (SELECT count(*) FROM promoted) AS more_due,
       (SELECT min(extract(epoch FROM n.visible_at) - extract(epoch FROM now()))::float8 FROM unnest($1::text[]) k (kind)
        CROSS JOIN LATERAL (
          SELECT s.visible_at FROM {schema}.live s WHERE s.state = 1 AND s.kind = k.kind AND s.visible_at > now()
          ORDER BY s.kind, s.visible_at LIMIT 1) n) AS next_due
