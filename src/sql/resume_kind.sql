-- resume_kind: let the jobs of a kind be claimed again.
--   $1 kind text
-- Rows: one: changed bool (it was paused).  Locks: the row; waits for another pause or resume of the kind.
-- Index: kind_state_pkey.
WITH gone AS (
  DELETE FROM {schema}.kind_state s WHERE s.kind = $1::text AND s.paused_at IS NOT NULL RETURNING s.kind)
SELECT EXISTS (SELECT 1 FROM gone) AS changed
