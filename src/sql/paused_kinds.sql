-- paused_kinds: which kinds are paused, and since when.
-- Rows: kind text, paused_at timestamptz, by kind.  Locks: none.  Index: kind_state_pkey.
SELECT s.kind, s.paused_at FROM {schema}.kind_state s WHERE s.paused_at IS NOT NULL ORDER BY s.kind
