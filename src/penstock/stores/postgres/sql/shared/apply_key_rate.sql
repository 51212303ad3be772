-- Applies a changed rate to the lanes of all keys: holds back those that the rate holds back, and lets the others go on, behind the
-- key served last. The transaction holds the queue's row. $2 is the time in µs, $3 the stride of a key without a rule, $4 the slack
-- of the rate in µs, null without one.
WITH lanes AS MATERIALIZED (
    SELECT
        lane.at, lane.held_until, lane.number, coalesce(rule.stride, $3::bigint) AS stride,
        CASE WHEN rate.arrival_us - $4::bigint > $2::bigint THEN (rate.arrival_us - $4::bigint + 999) / 1000 END AS until
    FROM (SELECT lane.ctid AS at, lane.* FROM penstock.lane WHERE lane.queue = $1 OFFSET 0) AS lane
    LEFT JOIN LATERAL (
        SELECT key_rule.stride FROM penstock.key_rule
        WHERE key_rule.queue = $1 AND key_rule.key = lane.key
        OFFSET 0
    ) AS rule ON true
    LEFT JOIN LATERAL (
        SELECT key_rate.arrival_us FROM penstock.key_rate
        WHERE key_rate.queue = $1 AND key_rate.key = lane.key
        OFFSET 0
    ) AS rate ON true
),
held AS (
    UPDATE penstock.lane SET held_until = lanes.until
    FROM lanes
    WHERE lane.ctid = lanes.at
        AND lanes.until IS NOT NULL
),
released AS (
    UPDATE penstock.lane SET held_until = NULL, turn = queue.virtual + freed.stride, number = queue.lanes + freed.i
    FROM (
        SELECT lanes.at, lanes.stride, row_number() OVER (ORDER BY lanes.held_until, lanes.number) AS i
        FROM lanes
        WHERE lanes.held_until IS NOT NULL
            AND lanes.until IS NULL
    ) AS freed
    JOIN penstock.queue ON queue.n = $1
    WHERE lane.ctid = freed.at
    RETURNING lane.key
)
UPDATE penstock.queue SET lanes = queue.lanes + fresh.many
FROM (SELECT count(*) AS many FROM released) AS fresh
WHERE queue.n = $1
    AND fresh.many > 0
