-- pause_kind: leave the jobs of a kind pending from now on; runs that have begun go on.
--   $1 kind text
-- Rows: one: changed bool (it was not paused before).  Locks: the row; waits for another pause or resume of the kind.
-- Index: kind_state_pkey.
INSERT INTO {schema}.kind_state AS s (kind, paused_at) VALUES ($1::text, clock_timestamp())
ON CONFLICT (kind) DO UPDATE SET paused_at = coalesce(s.paused_at, excluded.paused_at)
RETURNING s.paused_at >= statement_timestamp() AS changed
