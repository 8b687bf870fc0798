)
SELECT array_agg(id) AS ids, array_agg(run_count) AS runs, NULL AS id, NULL AS run_count, NULL AS kind, NULL AS priority,
  NULL AS created_at, NULL AS visible_at, NULL AS claimed_at, NULL AS failure_count, NULL AS carry, NULL AS trace, NULL AS payload,
  NULL AS looked, NULL AS looked_for, NULL AS stale
FROM done
UNION ALL
SELECT NULL, NULL, id, run_count, kind, priority, created_at, visible_at, claimed_at, failure_count, carry, trace, payload,
  looked, looked_for, stale
FROM taken
