-- claim: take up to `want` ready jobs of the given kinds, best first by (priority, created_at, id).
--   $1 worker text          fence identity, unique per worker incarnation
--   $2 leases float8[]      seconds, one per kind
--   $3 kinds text[]         registered kinds below their cap
--   $4 room int[]           how many more of each kind may be taken (no cap: any number >= want)
--   $5 floor int            0 none, 1 Normal or lower, 2 Low only
--   $6 want int             free slots
--   $7 spare int            how much deeper to look than `want`, for rows that others are taking right now
--   $8 look_back float8     seconds; how far behind now() an expiry may lie to be seen as stale
--   $9 skip bigint[]        jobs to leave alone: an earlier run of them is still going in this worker
-- Rows: the claimed jobs, not in order, each with
--   looked: candidates seen. looked > rows < want: some were lost to others, ask again with spare doubled
--   stale:  a claim of another worker has run out, so stale.sql has something to find
--   looked_for float8: seconds until the rows were found and locked
-- {kinds} says which kinds to look through: parts/kinds.sql, or parts/kinds_many.sql when there are more of them than rows
-- are looked at. {head} looks through one kind: parts/head.sql, or parts/head_from.sql while that takes long. The other
-- places are for an exchange, which settles first: parts/completed.sql or parts/discarded.sql, and parts/both.sql.
-- Locks: FOR NO KEY UPDATE SKIP LOCKED on exactly the rows it returns; never waits.
-- Kinds that are paused are left alone.
-- Index: live_ready (one probe per kind), then TIDs; live_lease (one probe); payload_pkey for large payloads only;
--   kind_state_pkey, all of it: the paused kinds.
-- Traps: "state + 0" keeps the planner off live_ready in the lock step (and is the re-check when another worker was
--   faster); the LIMIT is above the lock; ARRAY(...) makes the lock step run once, and a look-up of all TIDs together asks
--   for the table's size once, not for each; a ctid is only used inside the statement that read it; clock_timestamp(), because a lease must not begin before a wait for a table lock ended;
--   least(), because a count written by hand must not fail the claim of everybody.
WITH {settled}peek AS MATERIALIZED (
  SELECT c.*, k.began
  FROM (
    {kinds}) k
  CROSS JOIN LATERAL (
    {head}) c
  ORDER BY c.priority, c.created_at, c.id
  LIMIT $6::int + $7::int){taken}
UPDATE {schema}.live j SET
  state            = 2,
  claimed_by       = $1::text,
  claim_expires_at = clock_timestamp() + make_interval(secs => ($2::float8[])[array_position($3::text[], j.kind)]),
  run_count        = least(j.run_count, 2147483646) + 1
WHERE j.ctid = ANY (ARRAY(
    SELECT l.ctid
    FROM {schema}.live l
    WHERE l.ctid = ANY (ARRAY(SELECT tid FROM peek)) AND l.state + 0 = 0
    ORDER BY l.priority, l.created_at, l.id
    LIMIT $6::int
    FOR NO KEY UPDATE OF l SKIP LOCKED))
RETURNING j.id, j.run_count, j.kind, j.priority, j.created_at, j.visible_at, clock_timestamp() AS claimed_at,
  j.failure_count, j.carry, j.trace,
  coalesce(j.payload, (SELECT p.body FROM {schema}.payload p WHERE p.job_id = j.id)) AS payload,
  (SELECT count(*) FROM peek) AS looked,
  (SELECT extract(epoch FROM clock_timestamp() - min(began))::float8 FROM peek) AS looked_for,
  (SELECT EXISTS (
    SELECT 1 FROM {schema}.live s
    WHERE s.state = 2 AND s.claim_expires_at < now()
      AND s.claim_expires_at >= coalesce(now() - make_interval(secs => $8::float8), '-infinity') AND s.claimed_by <> $1::text)) AS stale{both}
