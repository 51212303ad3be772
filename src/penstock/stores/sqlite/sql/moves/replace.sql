-- replace: pending / delayed → pending / delayed; new payload and visible_at
-- Items: [id, payload, visible_at or null, state, headers as text or null].
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = json_extract(item.value, '$[0]')
WHERE 1
    AND job.state IN ('pending', 'delayed')  -- guard: state
ORDER BY item.key

-- step: change
UPDATE job SET
    state = json_extract(touched.value, '$[3]'),
    version = version + 1,
    place = :place + touched.i,
    payload = json_extract(touched.value, '$[1]'),
    visible_at = json_extract(touched.value, '$[2]'),
    more = iif(
        json_extract(touched.value, '$[4]') IS NULL,
        json_remove(more, '$.headers'),
        json_set(more, '$.headers', json(json_extract(touched.value, '$[4]')))
    )
FROM temp.touched
WHERE job.n = touched.n
