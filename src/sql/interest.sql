-- interest: say which kinds this session listens for; look only after it, and after LISTEN.
--   $1 keys bigint[]  as src/interest.rs makes them
-- Rows: one per key, without a meaning.  Index: none.
-- Locks: advisory and shared, one per key, to the end of the session, even if this fails half-way. It waits for whoever
-- tries one of them at this moment (notify), which is over with that one's commit; a second at most, because renewals wait behind it.
SELECT set_config('lock_timeout', '1s', true), pg_advisory_lock_shared(key) FROM unnest($1::bigint[]) key
