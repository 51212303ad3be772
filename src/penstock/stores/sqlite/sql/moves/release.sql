-- release: active → pending; the token must be current; to the front; no attempt used; cancelled if that was asked for
-- Items: [id, token, what its handler said of a cancel]. The front is below every place in use: the last one put there goes first.
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
    state = iif(cancel_requested, 'cancelled', 'pending'),
    version = version + 1,
    place = -(:place + touched.i),
    reason = iif(cancel_requested, :cancelled, reason),
    error = iif(cancel_requested, coalesce(json_extract(touched.value, '$[2]'), error), error),
    ended_at = iif(cancel_requested, :now, NULL),
    prune_at = iif(cancel_requested, :now + retention_ms, NULL),
    settled = substr(
        settled || token || ':release:' || iif(cancel_requested, 'cancelled', 'pending') || ' ', -:settled_chars
    ),
    token = NULL,
    deadline = NULL,
    lease_ms = NULL
FROM temp.touched
WHERE job.n = touched.n
