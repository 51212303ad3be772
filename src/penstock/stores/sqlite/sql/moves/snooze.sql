-- snooze: active → delayed; the token must be current; no attempt used; cancelled if that was asked for
-- Items: [id, token, delay in ms, reason why no handler could run it].
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
    place = :place + touched.i,
    visible_at = iif(cancel_requested, NULL, :now + json_extract(touched.value, '$[2]')),
    reason = iif(cancel_requested, :cancelled, coalesce(json_extract(touched.value, '$[3]'), reason)),
    more = CASE
        WHEN cancel_requested THEN more
        WHEN json_extract(touched.value, '$[3]') IS NULL THEN json_remove(more, '$.unhandled_since')
        ELSE json_insert(coalesce(more, '{}'), '$.unhandled_since', :now)
    END,
    ended_at = iif(cancel_requested, :now, NULL),
    prune_at = iif(cancel_requested, :now + retention_ms, NULL),
    settled = substr(
        settled || token || ':snooze:' || iif(cancel_requested, 'cancelled', 'delayed') || ' ', -:settled_chars
    ),
    token = NULL,
    deadline = NULL,
    lease_ms = NULL
FROM temp.touched
WHERE job.n = touched.n
