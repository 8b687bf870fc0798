-- notify: tell listening workers that there may be something for them.
--   $1 channel text (at most 63 bytes)  $2 payload text (less than 8000 bytes)
-- Rows: one, without a meaning.  Locks: the database-wide notification lock, while its transaction commits.  Index: none.
-- It does not wait until its own commit is on disk: what it tells of is, and after a crash nobody listens.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)
