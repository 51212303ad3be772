-- Opens and closes the lanes of keys: a key has one exactly while it has pending jobs and a free slot. The transaction holds the
-- queue's row. $2 is the time in µs; $3 the keys, in the order in which they were touched; $4 how many jobs of a key may run; $5
-- says whether keys have limits of their own; $6 is the stride of a key without a rule; $7 the slack of the keys' rate in µs and $8 how
-- many µs it may hold a key back at most, both null without one.
WITH checked AS MATERIALIZED (
    SELECT
        item.key, item.i, lane.at AS lane_at, coalesce(rule.stride, $6::bigint) AS stride, rate.at AS rate_at,
        rate.arrival_us, waiting.found IS NOT NULL AND active.many < key_limit.slots AS is_ready
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
    ) AS key_limit
    CROSS JOIN LATERAL (
        SELECT count(*) AS many
        FROM (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.key = item.key AND job.state = 'active'
            LIMIT key_limit.slots
        ) AS job
    ) AS active
),
closed AS (
    DELETE FROM penstock.lane
    USING checked
    WHERE lane.ctid = checked.lane_at
        AND NOT checked.is_ready
),
opened AS (
    INSERT INTO penstock.lane (queue, key, turn, number, held_until)
    SELECT
        $1, checked.key, queue.virtual + checked.stride, queue.lanes + row_number() OVER (ORDER BY checked.i),
        CASE
            WHEN checked.arrival_us - $7::bigint BETWEEN $2::bigint + 1 AND $2::bigint + $8::bigint
            THEN (checked.arrival_us - $7::bigint + 999) / 1000
        END
    FROM checked
    JOIN penstock.queue ON queue.n = $1
    WHERE checked.is_ready
        AND checked.lane_at IS NULL
    RETURNING lane.key
),
forgotten AS (
    DELETE FROM penstock.key_rate
    USING checked
    WHERE key_rate.ctid = checked.rate_at
        AND checked.arrival_us <= $2::bigint
)
UPDATE penstock.queue SET lanes = queue.lanes + fresh.many
FROM (SELECT count(*) AS many FROM opened) AS fresh
WHERE queue.n = $1
    AND fresh.many > 0
