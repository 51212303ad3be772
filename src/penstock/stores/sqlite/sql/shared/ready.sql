-- Whether keys could be served, looked at again: a lane exactly where jobs wait and a slot is free.
-- step: close
DELETE FROM lane
WHERE queue = :queue
    AND key IN (SELECT value FROM json_each(:keys))
    AND NOT (
        EXISTS (SELECT 1 FROM job WHERE job.queue = :queue AND job.key = lane.key AND job.state = 'pending')
        AND (SELECT count(*) FROM job WHERE job.queue = :queue AND job.key = lane.key AND job.state = 'active')
            < coalesce(
                (SELECT max_active FROM key_rule WHERE queue = :queue AND key = lane.key AND :dynamic), :key_limit
            )
    )

-- step: open
INSERT INTO lane (queue, key, turn, number, held_until)
SELECT
    :queue, asked.value, :virtual + coalesce(rule.stride, :stride),
    :lanes + row_number() OVER (ORDER BY asked.key),
    iif(
        rate.arrival_us - :key_slack_us BETWEEN :now_us + 1 AND :now_us + :key_furthest_us,
        (rate.arrival_us - :key_slack_us + 999) / 1000, NULL
    )
FROM json_each(:keys) AS asked
LEFT JOIN key_rule AS rule ON rule.queue = :queue AND rule.key = asked.value
LEFT JOIN key_rate AS rate ON rate.queue = :queue AND rate.key = asked.value AND :key_interval_us > 0
WHERE NOT EXISTS (SELECT 1 FROM lane WHERE lane.queue = :queue AND lane.key = asked.value)
    AND EXISTS (SELECT 1 FROM job WHERE job.queue = :queue AND job.key = asked.value AND job.state = 'pending')
    AND (SELECT count(*) FROM job WHERE job.queue = :queue AND job.key = asked.value AND job.state = 'active')
        < coalesce(iif(:dynamic, rule.max_active, NULL), :key_limit)
ORDER BY asked.key

-- step: forget
DELETE FROM key_rate
WHERE queue = :queue AND key IN (SELECT value FROM json_each(:keys)) AND arrival_us <= :now_us

-- step: release
UPDATE lane SET held_until = NULL, turn = :virtual + held.stride, number = :lanes + held.i
FROM (
    SELECT
        lane.key, coalesce(key_rule.stride, :stride) AS stride,
        row_number() OVER (ORDER BY lane.held_until, lane.number) AS i
    FROM lane
    LEFT JOIN key_rule ON key_rule.queue = lane.queue AND key_rule.key = lane.key
    -- A later time than the rate can bring about is one that the clock was set back from.
    WHERE lane.queue = :queue
        AND (lane.held_until <= :now OR lane.held_until > (:now_us + :key_furthest_us) / 1000 + 1)
) AS held
WHERE lane.queue = :queue AND lane.key = held.key

-- step: let_go
UPDATE lane SET held_until = NULL, turn = :virtual + held.stride, number = :lanes + held.i
FROM (
    SELECT
        lane.key, coalesce(key_rule.stride, :stride) AS stride,
        row_number() OVER (ORDER BY lane.held_until, lane.number) AS i
    FROM lane
    LEFT JOIN key_rule ON key_rule.queue = lane.queue AND key_rule.key = lane.key
    LEFT JOIN key_rate AS rate ON rate.queue = lane.queue AND rate.key = lane.key AND :key_interval_us > 0
    WHERE lane.queue = :queue
        AND lane.held_until IS NOT NULL
        AND coalesce(rate.arrival_us - :key_slack_us <= :now_us, 1)
) AS held
WHERE lane.queue = :queue AND lane.key = held.key

-- step: hold
UPDATE lane SET held_until = (rate.arrival_us - :key_slack_us + 999) / 1000
FROM key_rate AS rate
WHERE lane.queue = :queue
    AND rate.queue = :queue
    AND rate.key = lane.key
    AND :key_interval_us > 0
    AND rate.arrival_us - :key_slack_us > :now_us
