-- Of these, the ones whose first rows come first: as many as rows are looked at, for each of them has one that comes
-- before all rows of those left out. (100 kinds of 100 rows each: 1.05 ms instead of 1.45 ms for 16 jobs.)
    SELECT k.*
    FROM (
    {kinds}) k
    CROSS JOIN LATERAL (
    {first}) f
    ORDER BY f.priority, f.created_at, f.id
    LIMIT $6::int + $7::int
