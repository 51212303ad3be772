-- heartbeat: active → active; the token must be current and the deadline ahead; deadline = max(old, now + lease)
-- Items: [id, token]. Writes no event, so the version stays.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = json_extract(item.value, '$[0]')
WHERE 1
    AND job.state = 'active'  -- guard: state
    AND job.token = json_extract(item.value, '$[1]')  -- guard: token
    AND job.deadline > :now AND job.deadline <= :now + coalesce(job.lease_ms, :lease_limit) + :step_ms  -- guard: held
ORDER BY item.key

-- step: change
UPDATE job SET deadline = max(deadline, :now + :lease_ms), lease_ms = max(coalesce(job.lease_ms, 0), :lease_ms)
FROM temp.touched
WHERE job.n = touched.n
