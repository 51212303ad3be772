-- expire: active → delayed / dead / pending; the token must be current and the deadline passed; attempts + 1; cancelled if that was asked for
-- Items: [id, token, target, reason, error, fingerprint, delay in ms]; the lease's deadline is noted behind them.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, json_insert(item.value, '$[#]', job.deadline)
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = json_extract(item.value, '$[0]')
WHERE 1
    AND job.state = 'active'  -- guard: state
    AND job.token = json_extract(item.value, '$[1]')  -- guard: token
    AND (job.deadline <= :now OR job.deadline > :now + coalesce(job.lease_ms, :lease_limit) + :step_ms)  -- guard: expired
ORDER BY item.key

-- step: change
UPDATE job SET
    state = iif(cancel_requested, 'cancelled', json_extract(touched.value, '$[2]')),
    version = version + 1,
    attempts = attempts + 1,
    place = iif(json_extract(touched.value, '$[2]') = 'pending', -(:place + touched.i), :place + touched.i),
    visible_at = iif(
        json_extract(touched.value, '$[2]') = 'delayed' AND NOT cancel_requested,
        :now + json_extract(touched.value, '$[6]'),
        NULL
    ),
    last_delay_ms = iif(
        json_extract(touched.value, '$[2]') = 'delayed' AND NOT cancel_requested,
        json_extract(touched.value, '$[6]'),
        last_delay_ms
    ),
    reason = iif(cancel_requested, :cancelled, json_extract(touched.value, '$[3]')),
    error = json_extract(touched.value, '$[4]'),
    fingerprint = json_extract(touched.value, '$[5]'),
    more = iif(cancel_requested, more, json_remove(more, '$.unhandled_since')),
    ended_at = iif(cancel_requested OR json_extract(touched.value, '$[2]') = 'dead', :now, NULL),
    prune_at = iif(
        cancel_requested OR json_extract(touched.value, '$[2]') = 'dead', :now + retention_ms, NULL
    ),
    token = NULL,
    deadline = NULL,
    lease_ms = NULL
FROM temp.touched
WHERE job.n = touched.n
