-- settle_discarded: settle_completed for a worker that keeps no completed jobs. Fenced by worker, id and run.
--   $1 worker text
-- Rows: one: ids, runs of what was accepted, NULL if nothing was. What became of the others, settle tells: ask it with the same
--   results. One row, for a row each cost more to send and to read than everything else in the answer to a settlement.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs; payload_pkey for large payloads only; journal_pkey.
WITH
{discarded}
SELECT array_agg(id) AS ids, array_agg(run_count) AS runs FROM done
