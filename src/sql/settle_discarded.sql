-- settle_discarded: settle_completed for a worker that keeps no completed jobs. Fenced by worker, id and run.
--   $1 worker text
-- Rows: id, run_count of what was accepted. What became of the others, settle tells: ask it with the same results.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs; payload_pkey for large payloads only; journal_pkey.
WITH
{discarded}
SELECT id, run_count FROM done
