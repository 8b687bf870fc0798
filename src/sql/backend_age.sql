-- backend_age: how old is the server's process at the other end?
-- Rows: one: age float8 (seconds; 0 where a SET ROLE hides it).  Locks: none.  Index: none.
-- One that is older than the connection was there before it, and is lent by a pooler.
SELECT coalesce(extract(epoch FROM clock_timestamp() - a.backend_start), 0)::float8 AS age
FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()
