-- What the worker $1 has completed and nobody is to keep, fenced by worker, id and run.
-- {locked} is parts/locked.sql.
--   $2 ids bigint[] ascending  $3 runs int[] (run_count as claimed)
done AS (
  DELETE FROM {schema}.live j
  WHERE j.ctid = ANY (ARRAY(
    {locked}))
  RETURNING j.id, j.run_count, j.payload IS NULL AS apart),
bodies AS (
  DELETE FROM {schema}.payload p USING done d WHERE d.apart AND p.job_id = d.id),
entries AS (
  DELETE FROM {schema}.journal e USING done d WHERE e.job_id = d.id)
