-- workers: who holds claims.
-- Rows: worker text, claims, expired bigint, lease_left float8 (seconds of the claim that runs out first; negative: it has),
--   kinds text[], at most 20 of them.  By worker.  Locks: none.  Index: live_lease.
SELECT l.claimed_by AS worker, count(*) AS claims, count(*) FILTER (WHERE l.claim_expires_at < now()) AS expired,
  (extract(epoch FROM min(l.claim_expires_at)) - extract(epoch FROM now()))::float8 AS lease_left,
  (array_agg(DISTINCT l.kind))[1:20] AS kinds
FROM {schema}.live l WHERE l.state = 2
GROUP BY l.claimed_by ORDER BY l.claimed_by
