-- The rows that are still claimed by this worker for these runs.
-- ARRAY(...) makes the lock step run once, and a look-up of all TIDs together asks for the table's size once, not for each.
    SELECT l.ctid
    FROM unnest($2::bigint[], $3::int[]) r (id, run_count)
    JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
    FOR UPDATE OF l SKIP LOCKED
