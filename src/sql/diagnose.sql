-- diagnose: what the server shows of the state that it and the queue are in.
-- Rows: one, its columns as the facts of src/doctor.rs.
-- Locks: none.  Index: live_ready, live_scheduled, live_lease, finished_age, live_pkey, finished_pkey, journal_pkey.  For an operator's call, not for a loop.
-- Every view here can be read by everybody; what other users' sessions do is hidden without pg_read_all_stats, and counted.
SELECT now() AS at,
  (SELECT max(m.version) FROM {schema}.migration m) AS version,
  x.seconds AS transaction_seconds, x.who AS transaction_who,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity a
   WHERE a.query = '<insufficient privilege>' AND a.datname = current_database()) AS hidden,
  (SELECT string_agg(format('%s (%s, %s transactions behind)', s.slot_name,
       CASE WHEN s.active THEN 'in use' ELSE 'nobody uses it' END, age(s.xmin)), ', ' ORDER BY s.slot_name)
   FROM pg_catalog.pg_replication_slots s
   WHERE s.xmin IS NOT NULL AND (NOT s.active OR age(s.xmin) > 1000000)) AS slots,
  -- Who sends rows to a standby is in no database.
  (SELECT string_agg(format('%s (%s transactions behind)', a.application_name, age(a.backend_xmin)), ', ')
   FROM pg_catalog.pg_stat_activity a
   WHERE a.datid IS NULL AND a.usesysid IS NOT NULL AND age(a.backend_xmin) > 1000000) AS standbys,
  p.seconds AS prepared_seconds, p.who AS prepared_who,
  coalesce(t.n_live_tup, 0) AS live_rows, coalesce(t.n_dead_tup, 0) AS dead_rows,
  pg_catalog.pg_relation_size(c.oid) AS bytes, pg_catalog.pg_indexes_size(c.oid) AS index_bytes,
  current_setting('autovacuum')::bool AND current_setting('track_counts')::bool AS autovacuum,
  (SELECT n.setting::bigint FROM pg_catalog.pg_settings n WHERE n.name = 'autovacuum_naptime') AS naptime,
  coalesce(c.reloptions, '{}') AS options,
  coalesce((SELECT o.option_value::bool FROM pg_catalog.pg_options_to_table(c.reloptions) o
            WHERE o.option_name = 'autovacuum_enabled'), true) AS autovacuum_live,
  (SELECT count(*) FROM {schema}.live l WHERE l.state = 2 AND l.claim_expires_at < now()) AS expired,
  ARRAY(SELECT k.kind FROM (
      SELECT r.kind, min(r.visible_at) AS since FROM {schema}.live r WHERE r.state = 0 GROUP BY r.kind
      UNION ALL
      SELECT d.kind, min(d.visible_at) FROM {schema}.live d
      WHERE d.state = 1 AND d.visible_at < now() GROUP BY d.kind) k
    WHERE k.since < now() - interval '1 minute'
      AND NOT EXISTS (SELECT FROM {schema}.kind_state s WHERE s.kind = k.kind AND s.paused_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM {schema}.live h WHERE h.state = 2 AND h.kind = k.kind AND h.claim_expires_at >= now())
      AND NOT EXISTS (SELECT FROM {schema}.finished f WHERE f.status = ANY ('{3,4}'::smallint[])
        AND f.finished_at > now() - interval '10 minutes' AND f.kind = k.kind)
    GROUP BY k.kind ORDER BY k.kind) AS unserved,
  ARRAY(SELECT s.kind FROM {schema}.kind_state s WHERE s.paused_at IS NOT NULL AND EXISTS (
      SELECT FROM {schema}.live l WHERE l.kind = s.kind AND (l.state = 0 OR l.state = 1 AND l.visible_at < now()))
    ORDER BY s.kind) AS paused,
  -- NULL: none since it was made, or since a RESTART. Read later than the rows that this statement sees.
  coalesce(q.readable, false) AS sequence_readable,
  CASE WHEN q.readable THEN pg_catalog.pg_sequence_last_value(q.seqrelid) END AS sequence_last,
  greatest((SELECT max(l.id) FROM {schema}.live l), (SELECT max(f.id) FROM {schema}.finished f)) AS highest,
  coalesce(e.readable, false) AS journal_readable,
  CASE WHEN e.readable THEN pg_catalog.pg_sequence_last_value(e.seqrelid) END AS journal_last,
  -- Of the newest jobs: there is no index for all.
  (SELECT max(n.id) FROM (SELECT j.id FROM {schema}.journal j ORDER BY j.job_id DESC LIMIT 1000) n) AS journal_highest,
  current_setting('synchronous_commit') AS commits, current_setting('fsync')::bool AS fsync,
  w.connections, w.role_connections, w.database_connections,
  (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
   - coalesce(current_setting('reserved_connections', true)::int, 0))::bigint AS room,
  (SELECT o.rolconnlimit::bigint FROM pg_catalog.pg_roles o
   WHERE o.rolname = session_user AND o.rolconnlimit >= 0 AND NOT o.rolsuper) AS role_room,
  (SELECT d.datconnlimit::bigint FROM pg_catalog.pg_database d
   WHERE d.datname = current_database() AND d.datconnlimit >= 0) AS database_room
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_stat_all_tables t ON t.relid = c.oid
LEFT JOIN LATERAL (
  SELECT extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
    format('process %s of %s (%s), %s', a.pid, a.usename, a.application_name, a.state) AS who
  FROM pg_catalog.pg_stat_activity a
  WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.datname = current_database() AND a.backend_type = 'client backend'
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  ORDER BY a.xact_start LIMIT 1) x ON true
LEFT JOIN LATERAL (
  SELECT extract(epoch FROM clock_timestamp() - g.prepared)::float8 AS seconds, format('%s of %s', g.gid, g.owner) AS who
  FROM pg_catalog.pg_prepared_xacts g WHERE g.database = current_database()
  ORDER BY g.prepared LIMIT 1) p ON true
LEFT JOIN LATERAL (
  SELECT s.seqrelid, pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') AS readable
  FROM pg_catalog.pg_sequence s WHERE s.seqrelid = pg_catalog.to_regclass(E'{schema_in_text}.job_id')) q ON true
LEFT JOIN LATERAL (
  SELECT s.seqrelid, pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') AS readable
  FROM pg_catalog.pg_sequence s
  WHERE s.seqrelid = pg_catalog.to_regclass(pg_catalog.pg_get_serial_sequence(E'{schema_in_text}.journal', 'id'))) e ON true
-- Of whom nothing else is shown, the type of a session is neither.
CROSS JOIN LATERAL (
  SELECT count(*) AS connections,
    count(*) FILTER (WHERE b.usesysid = (SELECT o.oid FROM pg_catalog.pg_roles o WHERE o.rolname = session_user))
      AS role_connections,
    count(*) FILTER (WHERE b.datname = current_database()) AS database_connections
  FROM pg_catalog.pg_stat_activity b
  WHERE b.datid IS NOT NULL AND coalesce(b.backend_type, 'client backend') = 'client backend') w
WHERE c.oid = E'{schema_in_text}.live'::pg_catalog.regclass
