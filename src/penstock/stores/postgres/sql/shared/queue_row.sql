-- Holds the queue's row until the transaction ends, and reads it, and the time after that. $2 is the newest time that this process
-- has seen, in µs, $3 a time before which no delayed job is due.
WITH mine AS MATERIALIZED (
    SELECT * FROM penstock.queue WHERE queue.n = $1
    FOR UPDATE  -- locked
)
SELECT
    penstock.now_us($2::bigint), mine.is_plain, mine.has_keys, mine.declaration, mine.arrival_us,
    (
        SELECT job.visible_at FROM penstock.job
        WHERE job.queue = $1 AND job.visible_at >= $3::bigint
        ORDER BY job.visible_at LIMIT 1
    )
FROM mine
