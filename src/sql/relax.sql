-- relax: do not wait until this transaction's commit is on disk, or on a standby. Before a claim that goes alone.
-- Rows: one, without a meaning.  Locks: none.  Index: none.
-- If the server crashes within the next moments the claim may be forgotten: the job is then pending while its handler runs.
SELECT set_config('synchronous_commit', 'off', true)
