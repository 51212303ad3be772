-- cancel: blocked / pending / delayed / active → cancelled / active; what waits is cancelled; of what runs the request is noted
-- Items: ids. A request that is already noted changes nothing.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = item.value
WHERE 1
    AND job.state IN ('blocked', 'pending', 'delayed', 'active')  -- guard: state
    AND NOT job.cancel_requested
ORDER BY item.key

-- step: change
UPDATE job SET
    cancel_requested = state = 'active',
    version = version + 1,
    reason = iif(state = 'active', reason, :cancelled),
    ended_at = iif(state = 'active', ended_at, :now),
    prune_at = iif(state = 'active', prune_at, :now + retention_ms),
    visible_at = NULL,
    state = iif(state = 'active', 'active', 'cancelled')
FROM temp.touched
WHERE job.n = touched.n
