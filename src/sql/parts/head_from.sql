-- The ready rows of one kind from a first key per priority on, to step over index entries of rows that are gone
-- but that somebody's old snapshot keeps there (200,000 of them: 27 ms without, 0.6 ms with this).
--   $10 created_at timestamptz[]  three per kind, for High, Normal and Low; NULL: from the beginning
--   $11 ids bigint[]              the ids that go with them
-- Trap: rows before the keys are not seen, so nothing follows from a claim that comes back short or empty.
    SELECT h.*
    FROM generate_series($5::int, 2) p (priority)
    CROSS JOIN LATERAL (
      SELECT r.ctid AS tid, r.priority, r.created_at, r.id FROM {schema}.live r
      WHERE r.state = 0 AND r.kind = k.kind AND r.priority = p.priority::smallint AND r.id <> ALL ($9::bigint[])
        AND (r.created_at, r.id) >= (coalesce(($10::timestamptz[])[3 * k.nth - 2 + p.priority], '-infinity'),
                                     ($11::bigint[])[3 * k.nth - 2 + p.priority])
      ORDER BY r.kind, r.priority, r.created_at, r.id
      LIMIT least(k.room, {depth})) h
    ORDER BY h.priority, h.created_at, h.id
    LIMIT least(k.room, {depth})
