-- retry: active → delayed; the token must be current; attempts + 1; cancelled if that was asked for
-- Items: [id, token, reason, error, fingerprint, delay in ms].
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = json_extract(item.value, '$[0]')
WHERE 1
    AND job.state = 'active'  -- guard: state
    AND job.token = json_extract(item.value, '$[1]')  -- guard: token
ORDER BY item.key

-- step: change
UPDATE job SET
    state = iif(cancel_requested, 'cancelled', 'delayed'),
    version = version + 1,
    attempts = attempts + 1,
    place = :place + touched.i,
    visible_at = iif(cancel_requested, NULL, :now + json_extract(touched.value, '$[5]')),
    last_delay_ms = iif(cancel_requested, last_delay_ms, json_extract(touched.value, '$[5]')),
    reason = iif(cancel_requested, :cancelled, json_extract(touched.value, '$[2]')),
    error = json_extract(touched.value, '$[3]'),
    fingerprint = json_extract(touched.value, '$[4]'),
    more = iif(cancel_requested, more, json_remove(more, '$.unhandled_since')),
    ended_at = iif(cancel_requested, :now, NULL),
    prune_at = iif(cancel_requested, :now + retention_ms, NULL),
    settled = substr(
        settled || token || ':retry:' || iif(cancel_requested, 'cancelled', 'delayed') || ' ', -:settled_chars
    ),
    token = NULL,
    deadline = NULL,
    lease_ms = NULL
FROM temp.touched
WHERE job.n = touched.n
