-- settle_completed: settle for a batch of runs that all completed; a sixth less work for the server at 16 jobs. Fenced by worker,
-- id and run.
--   $1 worker text
-- Rows: id, run_count of what was accepted. What became of the others, settle tells: ask it with the same results.
-- Locks: FOR UPDATE SKIP LOCKED in the order of the input; never waits.
-- Index: live_pkey, then TIDs.  Writes finished.
WITH
{completed}
SELECT id, run_count FROM done
