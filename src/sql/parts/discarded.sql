-- What the worker $1 has completed and nobody is to keep, fenced by worker, id and run.
--   $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
-- ARRAY(...) makes the lock step run once, and a look-up of all TIDs together asks for the table's size once, not for each.
done AS (
  DELETE FROM {schema}.live j
  WHERE j.ctid = ANY (ARRAY(
    SELECT l.ctid
    FROM unnest($2::bigint[], $3::int[]) r (id, run_count)
    JOIN {schema}.live l ON l.id = r.id AND l.run_count = r.run_count AND l.claimed_by = $1::text AND l.state + 0 = 2
    FOR UPDATE OF l SKIP LOCKED))
  RETURNING j.id, j.run_count, j.payload IS NULL AS apart),
bodies AS (
  DELETE FROM {schema}.payload p USING done d WHERE d.apart AND p.job_id = d.id),
entries AS (
  DELETE FROM {schema}.journal e USING done d WHERE e.job_id = d.id)
