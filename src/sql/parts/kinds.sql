-- The kinds that may be claimed now, and when the look at them began.
    SELECT u.*, (SELECT clock_timestamp()) AS began
    FROM unnest($3::text[], $4::int[]) WITH ORDINALITY u (kind, room, nth)
    WHERE u.kind <> ALL (ARRAY(SELECT p.kind FROM {schema}.kind_state p WHERE p.paused_at IS NOT NULL ORDER BY p.kind))
