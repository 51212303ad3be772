-- redrive: failed / dead / cancelled → pending; to the back; attempts 0, drive + 1, policy and options kept
-- Items: ids. A job from before the queue had keys would wait for ever.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = item.value
WHERE 1
    AND job.state IN ('dead', 'failed', 'cancelled')  -- guard: state
    AND NOT (:keyed AND job.key IS NULL)
ORDER BY item.key

-- step: change
UPDATE job SET
    state = 'pending',
    version = version + 1,
    drive = drive + 1,
    attempts = 0,
    place = :place + touched.i,
    cancel_requested = 0,
    last_delay_ms = NULL,
    reason = NULL,
    error = NULL,
    fingerprint = NULL,
    more = json_remove(more, '$.unhandled_since'),
    ended_at = NULL,
    prune_at = NULL
FROM temp.touched
WHERE job.n = touched.n
