-- notify: tell listening workers that there may be something for them.
--   $1 channel text (at most 63 bytes)  $2 payload text (less than 8000 bytes)
-- Rows: one, empty.  Locks: the database-wide notification lock, while its transaction commits.  Index: none.
SELECT pg_notify($1::text, $2::text)
