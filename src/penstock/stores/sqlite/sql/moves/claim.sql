-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Leases up to :limit jobs to :worker; :tokens are 32 characters for each, of which :taken jobs have theirs.
-- Where keys take turns, those that go before any of them would go a second time are picked together.
-- step: pick
INSERT INTO temp.touched (n, source)
SELECT n, state
FROM job
WHERE queue = :queue
    AND state = 'pending'  -- guard: state
    AND :now >= (SELECT iif(paused_at, coalesce(paused_until, :now + 1), 0) FROM queue WHERE n = :queue)  -- guard: open
ORDER BY priority DESC, place
LIMIT :limit

-- step: pick_keys
INSERT INTO temp.touched (n, source, value)
SELECT
    (SELECT job.n FROM job
     WHERE job.queue = :queue AND job.key = front.key AND job.state = 'pending' ORDER BY job.place LIMIT 1),
    'pending', front.key
FROM (
    SELECT
        lane.key, lane.turn, lane.number,
        min(lane.turn + coalesce(key_rule.stride, :stride)) OVER () AS bound
    FROM (
        SELECT key, turn, number FROM lane
        WHERE queue = :queue AND held_until IS NULL ORDER BY turn, number LIMIT :limit
    ) AS lane
    LEFT JOIN key_rule ON key_rule.queue = :queue AND key_rule.key = lane.key
) AS front
WHERE front.turn <= front.bound
    AND :now >= (SELECT iif(paused_at, coalesce(paused_until, :now + 1), 0) FROM queue WHERE n = :queue)  -- guard: open
ORDER BY front.turn, front.number

-- step: change
UPDATE job SET
    state = 'active',
    version = version + 1,
    delivery = delivery + 1,
    token = substr(:tokens, 32 * (:taken + touched.i) - 31, 32),
    fence = min(max(fence + 1, :now_us, :floor_us), :highest_fence),
    deadline = :now + :lease_ms,
    lease_ms = :lease_ms,
    worker = :worker
FROM temp.touched
WHERE job.n = touched.n

-- step: answer
SELECT json_group_array(json_array(
    id, task, payload, priority, options, enqueued_at, drive, delivery, attempts, token, fence, deadline, key,
    last_delay_ms, cancel_requested, more
))
FROM (SELECT job.* FROM temp.touched JOIN job ON job.n = touched.n ORDER BY touched.i)

-- step: virtual
SELECT max(lane.turn) FROM temp.touched JOIN lane ON lane.queue = :queue AND lane.key = touched.value

-- step: rate
INSERT INTO key_rate (queue, key, arrival_us)
SELECT :queue, value, :now_us + :key_interval_us FROM temp.touched WHERE 1
ON CONFLICT (queue, key) DO UPDATE SET arrival_us = :key_interval_us + iif(
    -- A later time than the rate can bring about is one that the clock was set back from.
    arrival_us - :key_slack_us > :now_us + :key_furthest_us, :now_us, max(arrival_us, :now_us)
)

-- step: served
UPDATE lane SET
    turn = lane.turn + coalesce(
        (SELECT stride FROM key_rule WHERE key_rule.queue = :queue AND key_rule.key = lane.key), :stride
    ),
    number = :lanes + touched.i,
    held_until = (
        SELECT (rate.arrival_us - :key_slack_us + 999) / 1000
        FROM key_rate AS rate
        WHERE rate.queue = :queue AND rate.key = lane.key AND :key_interval_us > 0
            AND rate.arrival_us - :key_slack_us > :now_us
    )
FROM temp.touched
WHERE lane.queue = :queue AND lane.key = touched.value
