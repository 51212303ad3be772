-- An upper bound of how many jobs wait, found without counting them all; null where there is none. Places at the back are numbers
-- of the queue's events, and none is used twice: so from the first place that is taken to the newest number there are at least as
-- many numbers as jobs. Jobs at the front, delayed and blocked ones are counted, each kind no further than $2.
SELECT
    CASE WHEN oldest.first IS NULL THEN 0 ELSE pg_sequence_last_value(queue.numbers) - oldest.first + 1 END
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
) AS oldest
WHERE queue.n = $1
