-- lock_timeout: for the rest of the transaction, let nobody wait for a lock without end; and the way back.
--   $1 from text  $2 to text   as the setting is shown: '0' is none
-- Rows: one, empty of meaning, if the setting was `from`; none, and nothing is changed, if it was another.
-- Locks: none.  Index: none.
SELECT set_config('lock_timeout', $2::text, true) FROM current_setting('lock_timeout') s (it) WHERE s.it = $1::text
