-- The lanes whose turn is next, how many lanes were numbered so far, and how many jobs each lane could give. $2 is how many jobs are
-- wanted at most, $3 how many jobs of a key may run, $4 says whether keys have limits of their own, $5 is the stride of a key
-- without a rule. No lane is behind the key served last.
SELECT
    (SELECT queue.lanes FROM penstock.queue WHERE queue.n = $1),
    lane.key, lane.turn, lane.number, coalesce(rule.stride, $5::bigint), key_limit.slots - active.many,
    (
        SELECT count(*)
        FROM (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.key = lane.key AND job.state = 'pending'
            ORDER BY job.place LIMIT greatest(0, least($2::bigint + 1, key_limit.slots - active.many))
        ) AS job
    ),
    coalesce(rate.arrival_us, 0)
FROM (
    SELECT lane.key, lane.turn, lane.number FROM penstock.lane
    WHERE lane.queue = $1
        AND lane.held_until IS NULL
        AND lane.turn >= (SELECT queue.virtual FROM penstock.queue WHERE queue.n = $1)
    ORDER BY lane.turn, lane.number
    LIMIT $2::bigint
) AS lane
LEFT JOIN LATERAL (
    SELECT key_rule.stride, key_rule.max_active FROM penstock.key_rule
    WHERE key_rule.queue = $1 AND key_rule.key = lane.key
    OFFSET 0
) AS rule ON true
LEFT JOIN LATERAL (
    SELECT key_rate.arrival_us FROM penstock.key_rate
    WHERE key_rate.queue = $1 AND key_rate.key = lane.key
    OFFSET 0
) AS rate ON true
CROSS JOIN LATERAL (
    SELECT coalesce(CASE WHEN $4::boolean THEN rule.max_active END, $3::bigint) AS slots
) AS key_limit
CROSS JOIN LATERAL (
    SELECT count(*) AS many
    FROM (
        SELECT 1 FROM penstock.job
        WHERE job.queue = $1 AND job.key = lane.key AND job.state = 'active'
        LIMIT key_limit.slots
    ) AS job
) AS active
