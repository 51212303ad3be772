-- What comes next for a claim that found too little: the next delayed job, the next deadline, the next key that its rate holds
-- back, whether jobs are pending, and whether a lease ran out. $2 is the time in ms; $3 is a time before which no lease ends, $4 one
-- before which no delayed job is due; $5 is the lease of the claim in ms.
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
        WHERE job.queue = $1 AND job.deadline > $2::bigint + $5::bigint + {clock_step_ms}
    )
FROM penstock.queue
WHERE queue.n = $1
