-- reserve: take numbers for jobs that are about to be copied, which COPY could not tell.
--   $1 count int
-- Rows: one: ids bigint[], ascending; at bigint, microseconds since 1970 by the server's clock.
-- Locks: the sequence, for a moment.  Index: none.
-- What is not used in the end is a gap, which numbers may have.
SELECT array_agg(nextval(E'{schema_in_text}.job_id'::regclass)) AS ids,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at
FROM generate_series(1, $1::int)
