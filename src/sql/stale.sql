-- stale: find claims of other workers whose lease has run out. What becomes of them is decided by the caller: recover.sql.
--   $1 look_back float8   seconds; how far behind now() an expiry may lie (time since the previous pass + 10; NULL: without bound)
--   $2 most int           rows per pass
--   $3 worker text        this worker, whose own claims are left alone
-- Rows: id, run_count, kind, failure_count (before this failure), claimed_by; the longest expired first.
-- Locks: none.  Index: live_lease.
SELECT s.id, s.run_count, s.kind, s.failure_count, s.claimed_by
FROM {schema}.live s
WHERE s.state = 2 AND s.claim_expires_at < now()
  AND s.claim_expires_at >= coalesce(now() - make_interval(secs => $1::float8), '-infinity') AND s.claimed_by <> $3::text
ORDER BY s.claim_expires_at
LIMIT $2::int
