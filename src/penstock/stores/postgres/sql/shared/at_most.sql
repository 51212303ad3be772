-- How many wait at most, without counting all of them; null where that cannot be told. Places at the back are numbers of the
-- queue's events, each given once: from the first that is taken to the newest there are at least as many numbers as jobs.
-- The others are counted, and no further than $2.
SELECT
    CASE WHEN line.first IS NULL THEN 0 ELSE pg_sequence_last_value(queue.numbers) - line.first + 1 END
    + (
        SELECT count(*)
        FROM (
            (
                SELECT 1
                FROM generate_series(0, 9) AS tier
                CROSS JOIN LATERAL (
                    SELECT 1 FROM penstock.job
                    WHERE job.queue = $1 AND job.priority = tier AND job.place < 0 AND job.state = 'pending'
                ) AS front
                LIMIT $2::bigint
            )
            UNION ALL
            (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.visible_at IS NOT NULL LIMIT $2::bigint)
            UNION ALL
            (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.state = 'blocked' LIMIT $2::bigint)
        ) AS waiting
    )
FROM penstock.queue
CROSS JOIN LATERAL (
    SELECT min(back.place) AS first
    FROM generate_series(0, 9) AS tier
    CROSS JOIN LATERAL (
        SELECT job.place FROM penstock.job
        WHERE job.queue = $1 AND job.priority = tier AND job.place > 0 AND job.state = 'pending'
        ORDER BY job.place
        LIMIT 1
    ) AS back
) AS line
WHERE queue.n = $1
