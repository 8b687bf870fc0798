-- lock_keys: the first half of requeue: the locks on the dedup keys of finished jobs, which enqueueing takes as well.
--   $1 ids bigint[]
-- Rows: one, of no interest. What it got is kept in the setting venturi.locked, for requeue.
-- Locks: advisory, on schema, kind and key, to the end of the transaction; never waits.  Index: finished_pkey.
-- A statement of its own, because the next one must see what the last holder of a lock has committed.
SELECT set_config('venturi.locked', coalesce(array_agg(k.id) FILTER (WHERE k.locked), '{}')::text, true)
FROM (
  SELECT f.id, CASE WHEN f.dedup_key IS NULL THEN true
                    ELSE pg_try_advisory_xact_lock(hashtextextended(
                      format('venturi %s %s %s', (parse_ident(E'{schema_in_text}'))[1], f.kind, f.dedup_key), 0)) END AS locked
  FROM unnest($1::bigint[]) i (id)
  JOIN {schema}.finished f ON f.id = i.id
  OFFSET 0) k
