-- What a claim that may wait waits for: the next delayed job, the next deadline, the next key that its rate lets go, whether
-- jobs wait; and whether a lease ran out. $2 is the time in ms, $3 and $4 are times before which no lease and no delayed job is, $5 is
-- the lease of the claim in ms.
SELECT
    (
        SELECT job.visible_at FROM penstock.job
        WHERE job.queue = $1 AND job.visible_at >= $4::bigint
        ORDER BY job.visible_at LIMIT 1
    ),
    (
        SELECT job.deadline FROM penstock.job
        WHERE job.queue = $1 AND job.deadline >= $3::bigint
        ORDER BY job.deadline LIMIT 1
    ),
    (
        SELECT lane.held_until FROM penstock.lane
        WHERE lane.queue = $1 AND lane.held_until IS NOT NULL
        ORDER BY lane.held_until LIMIT 1
    ),
    EXISTS (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.state = 'pending'),
    CASE WHEN queue.paused_until > $2::bigint THEN queue.paused_until END,
    EXISTS (
        SELECT 1 FROM penstock.job
        WHERE job.queue = $1 AND job.deadline BETWEEN $3::bigint AND $2::bigint
    ) OR EXISTS (
        SELECT 1 FROM penstock.job
        WHERE job.queue = $1 AND job.deadline > $2::bigint + $5::bigint + 60000
    )
FROM penstock.queue
WHERE queue.n = $1
