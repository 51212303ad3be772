-- Whether keys could be served, looked at again: a lane exactly where jobs wait and a slot is free. The queue's row is held.
-- $2 is the time in µs, $3 are the keys in the order they were touched, $4 is how many of a key may run, $5 says that keys may
-- have limits of their own, $6 is the stride of a key without a rule; $7 is the slack of the keys' rate in µs, null without one.
WITH asked AS MATERIALIZED (
    SELECT
        item.key, item.i, lane.at AS lane_at, coalesce(rule.stride, $6::bigint) AS stride, rate.at AS rate_at,
        rate.arrival_us, waiting.found IS NOT NULL AND active.many < room.slots AS is_ready
    FROM unnest($3::text[]) WITH ORDINALITY AS item (key, i)
    LEFT JOIN LATERAL (
        SELECT lane.ctid AS at FROM penstock.lane WHERE lane.queue = $1 AND lane.key = item.key OFFSET 0
    ) AS lane ON true
    LEFT JOIN LATERAL (
        SELECT key_rule.stride, key_rule.max_active FROM penstock.key_rule
        WHERE key_rule.queue = $1 AND key_rule.key = item.key
        OFFSET 0
    ) AS rule ON true
    LEFT JOIN LATERAL (
        SELECT key_rate.ctid AS at, key_rate.arrival_us FROM penstock.key_rate
        WHERE key_rate.queue = $1 AND key_rate.key = item.key
        OFFSET 0
    ) AS rate ON true
    LEFT JOIN LATERAL (
        SELECT 1 AS found FROM penstock.job
        WHERE job.queue = $1 AND job.key = item.key AND job.state = 'pending'
        ORDER BY job.place LIMIT 1
    ) AS waiting ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(CASE WHEN $5::boolean THEN rule.max_active END, $4::bigint) AS slots
    ) AS room
    CROSS JOIN LATERAL (
        SELECT count(*) AS many
        FROM (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.key = item.key AND job.state = 'active'
            LIMIT room.slots
        ) AS job
    ) AS active
),
closed AS (
    DELETE FROM penstock.lane
    USING asked
    WHERE lane.ctid = asked.lane_at
        AND NOT asked.is_ready
),
opened AS (
    INSERT INTO penstock.lane (queue, key, turn, number, held_until)
    SELECT
        $1, asked.key, queue.virtual + asked.stride, queue.lanes + row_number() OVER (ORDER BY asked.i),
        CASE WHEN asked.arrival_us - $7::bigint > $2::bigint THEN (asked.arrival_us - $7::bigint + 999) / 1000 END
    FROM asked
    JOIN penstock.queue ON queue.n = $1
    WHERE asked.is_ready
        AND asked.lane_at IS NULL
    RETURNING lane.key
),
forgotten AS (
    DELETE FROM penstock.key_rate
    USING asked
    WHERE key_rate.ctid = asked.rate_at
        AND asked.arrival_us <= $2::bigint
)
UPDATE penstock.queue SET lanes = queue.lanes + fresh.many
FROM (SELECT count(*) AS many FROM opened) AS fresh
WHERE queue.n = $1
    AND fresh.many > 0
