-- The first ready rows of one kind.
    SELECT r.ctid AS tid, r.priority, r.created_at, r.id FROM {schema}.live r
    WHERE r.state = 0 AND r.kind = k.kind AND r.priority >= $5::int AND r.id <> ALL ($9::bigint[])
    ORDER BY r.kind, r.priority, r.created_at, r.id
    LIMIT least(k.room, {depth})
