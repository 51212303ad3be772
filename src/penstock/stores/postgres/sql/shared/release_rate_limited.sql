-- Lets keys go on that their rate held back until now, or by a time that the clock was set back from: their lanes join behind the
-- key served last. The transaction holds the queue's row. $2 is the time in µs, $3 the stride of a key without a rule, $4 how many
-- µs the rate may hold a key back at most.
WITH held AS MATERIALIZED (
    SELECT lane.at, coalesce(rule.stride, $3::bigint) AS stride, row_number() OVER (ORDER BY held_until, number) AS i
    FROM (
        SELECT lane.ctid AS at, lane.key, lane.held_until, lane.number FROM penstock.lane
        WHERE lane.queue = $1 AND lane.held_until <= $2::bigint / 1000
        UNION ALL
        SELECT lane.ctid, lane.key, lane.held_until, lane.number FROM penstock.lane
        WHERE lane.queue = $1 AND lane.held_until > ($2::bigint + $4::bigint) / 1000 + 1
        OFFSET 0
    ) AS lane
    LEFT JOIN LATERAL (
        SELECT key_rule.stride FROM penstock.key_rule
        WHERE key_rule.queue = $1 AND key_rule.key = lane.key
        OFFSET 0
    ) AS rule ON true
),
released AS (
    UPDATE penstock.lane SET held_until = NULL, turn = queue.virtual + held.stride, number = queue.lanes + held.i
    FROM held
    JOIN penstock.queue ON queue.n = $1
    WHERE lane.ctid = held.at
    RETURNING lane.key
)
UPDATE penstock.queue SET lanes = queue.lanes + fresh.many
FROM (SELECT count(*) AS many FROM released) AS fresh
WHERE queue.n = $1
    AND fresh.many > 0
