-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Leases up to :limit jobs to :worker; :tokens are 32 characters for each.
-- step: pick
INSERT INTO temp.touched (n, source)
SELECT n, state
FROM job
WHERE queue = :queue
    AND state = 'pending'  -- guard: state
    AND :now >= (SELECT iif(paused_at, coalesce(paused_until, :now + 1), 0) FROM queue WHERE n = :queue)  -- guard: open
ORDER BY priority DESC, place
LIMIT :limit

-- step: change
UPDATE job SET
    state = 'active',
    version = version + 1,
    delivery = delivery + 1,
    token = substr(:tokens, 32 * touched.i - 31, 32),
    fence = max(fence + 1, :now_us),
    deadline = :now + :lease_ms,
    worker = :worker
FROM temp.touched
WHERE job.n = touched.n

-- step: answer
SELECT json_group_array(json_array(
    id, task, payload, priority, options, enqueued_at, drive, delivery, attempts, token, fence, deadline, key,
    last_delay_ms, cancel_requested
))
FROM (SELECT job.* FROM temp.touched JOIN job ON job.n = touched.n ORDER BY touched.i)
