-- settle_completed: settle for a batch of runs that all completed; a sixth less work for the server at 16 jobs. Fenced by worker,
-- id and run.
--   $1 worker text
-- Rows: one: ids, runs of what was accepted, NULL if nothing was. What became of the others, settle tells: ask it with the same
--   results. One row, for a row each cost more to send and to read than everything else in the answer to a settlement.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs.  Writes finished.
WITH
{completed}
SELECT array_agg(id) AS ids, array_agg(run_count) AS runs FROM done
