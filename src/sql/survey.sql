-- survey: what is there to do, and when? Asked before a worker goes to sleep.
--   $1 kinds text[]        registered kinds
--   $2 worker text
--   $3 look_back float8    seconds (as stale.sql), for due and stale
--   $4 horizon float8      seconds until the next survey: a lease that ends later is not looked for
--   $5 open text[]         those of the kinds of which more may run, for ready
--   $6 skip bigint[]       jobs that a claim leaves alone (as claim.sql)
-- Rows: one: ready bool   one of the open kinds is claimable now: it has a ready job, not among those, and is not paused
--   due bool              a scheduled one is due already: promote
--   stale bool            a claim of another worker has run out: recover
--   next_due float8       seconds until the next scheduled one is due (NULL: none)
--   next_expiry float8    seconds until the next lease of another worker ends (NULL: none within the horizon)
-- Trap: the lease index keeps entries of jobs that are done, until vacuum or an old snapshot lets them go, with leases that
--   would end minutes from now. Without the horizon a survey reads them all (100,000: 170 ms).
-- priority >= 0: as in claim, or a row written by hand would be announced for ever and never found.
-- Locks: none.  Index: live_ready, live_scheduled (two probes), live_lease (two probes); kind_state_pkey, all of it.
SELECT EXISTS (
         SELECT 1 FROM unnest($5::text[]) k (kind)
         CROSS JOIN LATERAL (
           SELECT 1 FROM {schema}.live r
           WHERE r.state = 0 AND r.kind = k.kind AND r.priority >= 0 AND r.id <> ALL ($6::bigint[])
           ORDER BY r.kind, r.priority, r.created_at, r.id LIMIT 1) r
         WHERE k.kind <> ALL (
           ARRAY(SELECT p.kind FROM {schema}.kind_state p WHERE p.paused_at IS NOT NULL ORDER BY p.kind))) AS ready,
       EXISTS (
         SELECT 1 FROM unnest($1::text[]) k (kind)
         CROSS JOIN LATERAL (
           SELECT 1 FROM {schema}.live s
           WHERE s.state = 1 AND s.kind = k.kind
             AND s.visible_at >= coalesce(now() - make_interval(secs => $3::float8), '-infinity') AND s.visible_at <= now()
           ORDER BY s.kind, s.visible_at LIMIT 1) s) AS due,
       EXISTS (
         SELECT 1 FROM {schema}.live s
         WHERE s.state = 2 AND s.claim_expires_at < now()
           AND s.claim_expires_at >= coalesce(now() - make_interval(secs => $3::float8), '-infinity') AND s.claimed_by <> $2::text) AS stale,
       (SELECT min(extract(epoch FROM n.visible_at) - extract(epoch FROM now()))::float8 FROM unnest($1::text[]) k (kind)
        CROSS JOIN LATERAL (
          SELECT s.visible_at FROM {schema}.live s WHERE s.state = 1 AND s.kind = k.kind AND s.visible_at > now()
          ORDER BY s.kind, s.visible_at LIMIT 1) n) AS next_due,
       (SELECT (extract(epoch FROM s.claim_expires_at) - extract(epoch FROM now()))::float8 FROM {schema}.live s
        WHERE s.state = 2 AND s.claim_expires_at >= now()
          AND s.claim_expires_at <= now() + make_interval(secs => $4::float8) AND s.claimed_by <> $2::text
        ORDER BY s.claim_expires_at LIMIT 1) AS next_expiry
