-- unblock: blocked → pending / delayed / failed; its last awaited child must have ended; failed if one did without success and the policy says so
-- Items: [id]. The parent's policy was read before: it leads to :state, at :visible_at if that is delayed.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = json_extract(item.value, '$[0]')
WHERE 1
    AND job.state = 'blocked'  -- guard: state
ORDER BY item.key

-- step: change
UPDATE job SET
    state = :state,
    version = version + 1,
    place = :place + touched.i,
    visible_at = :visible_at,
    reason = iif(:state = 'failed', :reason, reason),
    error = iif(:state = 'failed', :error, error),
    ended_at = iif(:state = 'failed', :now, NULL),
    prune_at = iif(:state = 'failed', :now + retention_ms, NULL)
FROM temp.touched
WHERE job.n = touched.n
