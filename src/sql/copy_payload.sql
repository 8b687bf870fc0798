-- copy_payload: store the payloads of more than 1024 bytes of the jobs that are about to be copied.
-- Rows: none.  Locks: none on other rows.  Index: writes payload_pkey.
COPY {schema}.payload (job_id, body) FROM STDIN (FORMAT binary)
