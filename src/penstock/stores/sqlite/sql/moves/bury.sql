-- bury: active → dead; the token must be current; attempts + 1 unless none could begin; cancelled if that was asked for
-- Items: [id, token, reason, error, fingerprint, 1 or 0 attempts].
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
    state = iif(cancel_requested, 'cancelled', 'dead'),
    version = version + 1,
    attempts = attempts + json_extract(touched.value, '$[5]'),
    reason = iif(cancel_requested, :cancelled, json_extract(touched.value, '$[2]')),
    error = json_extract(touched.value, '$[3]'),
    fingerprint = json_extract(touched.value, '$[4]'),
    ended_at = :now,
    prune_at = :now + retention_ms,
    settled = substr(
        settled || token || ':bury:' || iif(cancel_requested, 'cancelled', 'dead') || ' ', -:settled_chars
    ),
    token = NULL,
    deadline = NULL,
    lease_ms = NULL
FROM temp.touched
WHERE job.n = touched.n
