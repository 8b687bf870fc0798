-- enqueue_keyed: one round of an enqueue for each of several jobs with dedup keys; what a round is stands with the function.
--   $1 kinds text[]  $2 priorities smallint[]  $3 payloads json[]
--   $4 delays float8[] seconds  $5 due_ats timestamptz[] (not NULL: instead of the delay)  $6 dedup_keys text[]
--   $7 decisions text[] (NULL: none yet)  $8 expected text[] (NULL: nobody)  $9 carries json[]
--   $10 skips text[]       each the text of a bigint[]
--   $11 wait bool          for transactions that have a key; else they are answered 'busy'
--   $12 notify bool        wake workers with the commit; else they are told otherwise
--   $13 traces text[]      each the context of its trace (NULL: what the transaction says, if it says anything)
-- Rows: the function's, one per job, in the order of the input.
-- Locks: those of the function, to the end of the statement; without $11 it never waits, so there are no cycles; with it, in
--   the order of the input.
-- Index: the function's.
SELECT e.*
FROM unnest($1::text[], $2::smallint[], $3::json[], $4::float8[], $5::timestamptz[], $6::text[], $7::text[], $8::text[],
            $9::json[], $10::text[], $13::text[])
  WITH ORDINALITY t (kind, priority, payload, delay, due_at, dedup_key, decision, expected, carry, skip, trace, nth)
CROSS JOIN LATERAL {schema}.enqueue_keyed(
  t.kind, t.payload, t.priority, t.delay, t.due_at, t.dedup_key, t.decision, t.expected, t.carry, t.skip::bigint[],
  $11::bool, $12::bool, coalesce(t.trace, {schema}.current_trace())) e
ORDER BY t.nth
