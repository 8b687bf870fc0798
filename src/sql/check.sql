-- check: which version has the schema, and which code may use it?
-- Rows: one: version int (0: no migration was ever run), compatible_from int (the oldest code that works with it).
-- Fails with undefined_table or invalid_schema_name where nothing was ever migrated.
-- Locks: none.  Index: migration_pkey.
SELECT coalesce(max(m.version), 0) AS version,
       coalesce((array_agg(m.compatible_from ORDER BY m.version DESC))[1], 0) AS compatible_from
FROM {schema}.migration m
