-- notify: tell listening workers that there may be something for them, if any of them is interested.
--   $1 channel text (at most 63 bytes)  $2 payload text (less than 8000 bytes)
--   $3 keys bigint[]   of the interests that it concerns (none: of everybody)
-- Rows: one; told: whether it was sent.  Index: none.
-- Locks: advisory, on the keys that nobody else has, to the end of the transaction; never waits. If it is sent, the
-- database-wide notification lock, while its transaction commits.
-- It costs each session that listens a transaction, whatever it is about; so it is left out where nobody waits for it.
-- Whoever is interested holds a shared lock on a key (interest), which refuses it to all others; the session's own locks
-- refuse it nothing, since it need not be told. Two that try at the same moment refuse each other, and tell for nothing.
-- Nothing is lost if what it tells of was committed before, in a transaction of its own: a worker takes its locks, listens,
-- and then looks. Either they are refused here, or that look comes after the commit. So never within that transaction.
-- It does not wait until its own commit is on disk: what it tells of is, and after a crash nobody listens.
-- OFFSET 0: the locks are tried once.
SELECT set_config('synchronous_commit', 'off', true), t.told, CASE WHEN t.told THEN pg_notify($1::text, $2::text) END
FROM (SELECT (SELECT bool_and(pg_try_advisory_xact_lock(key)) FROM unnest($3::bigint[]) key) IS NOT TRUE AS told
      OFFSET 0) t
