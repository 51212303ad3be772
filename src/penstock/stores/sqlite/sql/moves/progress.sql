-- progress: active → active; the token must be current; the last value is kept
-- Items: [id, token, value]. An event, and with it a version, at most once in :progress_every.
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
UPDATE job SET progress = json_extract(touched.value, '$[2]')
FROM temp.touched
WHERE job.n = touched.n

-- step: quiet
DELETE FROM temp.touched
WHERE n IN (SELECT n FROM job WHERE job.n = touched.n AND job.progress_at > :now - :progress_every)

-- step: renumber
UPDATE temp.touched SET i = (SELECT count(*) FROM temp.touched AS other WHERE other.i <= touched.i)

-- step: tell
UPDATE job SET version = version + 1, progress_at = :now
FROM temp.touched
WHERE job.n = touched.n
