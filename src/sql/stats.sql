-- stats: how many jobs of each kind there are, as of one instant.
-- Rows: one of the kind '', which no job has, so that there is an instant where there is nothing else;
--   one per kind that has any of it: kind text, ready, scheduled, claimed, dead bigint,
--   finished bigint       ended within the last minute, whichever way
--   waits float8          seconds for which the longest waiting ready job has been claimable (NULL: none is ready)
--   paused bool
--   at timestamptz        the instant
-- Locks: none.  Index: live_ready, live_scheduled, live_lease and finished_failed, all of them; finished_age for the last minute;
--   kind_state_pkey.
--   So it costs what is live, dead or cancelled, and recent; how many jobs have completed does not matter.
-- Scheduled jobs that are due count as ready: whether one has been promoted already is nobody's concern.
SELECT s.kind, sum(s.ready)::bigint AS ready, sum(s.scheduled)::bigint AS scheduled, sum(s.claimed)::bigint AS claimed,
  sum(s.dead)::bigint AS dead, sum(s.finished)::bigint AS finished,
  (extract(epoch FROM now()) - min(extract(epoch FROM s.ready_since)))::float8 AS waits, bool_or(s.paused) AS paused,
  now() AS at
FROM (
  SELECT r.kind, count(*) AS ready, 0 AS scheduled, 0 AS claimed, 0 AS dead, 0 AS finished,
    min(r.visible_at) AS ready_since, false AS paused
  FROM {schema}.live r WHERE r.state = 0 GROUP BY r.kind
  UNION ALL
  SELECT l.kind, count(*) FILTER (WHERE l.visible_at <= now()), count(*) FILTER (WHERE l.visible_at > now()), 0, 0, 0,
    min(l.visible_at) FILTER (WHERE l.visible_at <= now()), false
  FROM {schema}.live l WHERE l.state = 1 GROUP BY l.kind
  UNION ALL
  SELECT c.kind, 0, 0, count(*), 0, 0, NULL, false FROM {schema}.live c WHERE c.state = 2 GROUP BY c.kind
  UNION ALL
  SELECT d.kind, 0, 0, 0, count(*) FILTER (WHERE d.status = 4), 0, NULL, false
  FROM {schema}.finished d WHERE d.status > 3 GROUP BY d.kind
  UNION ALL
  SELECT f.kind, 0, 0, 0, 0, count(*), NULL, false
  FROM unnest('{3,4,5}'::smallint[]) e (status)
  JOIN {schema}.finished f ON f.status = e.status AND f.finished_at > now() - interval '1 minute' GROUP BY f.kind
  UNION ALL
  SELECT p.kind, 0, 0, 0, 0, 0, NULL, true FROM {schema}.kind_state p
  WHERE p.kind > '' AND p.paused_at IS NOT NULL
  UNION ALL
  SELECT '', 0, 0, 0, 0, 0, NULL, false) s
GROUP BY s.kind
ORDER BY s.kind
