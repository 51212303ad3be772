-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Items: ids.
-- step: pick
INSERT INTO temp.touched (n, item, source, value)
SELECT job.n, item.key, job.state, item.value
FROM json_each(:items) AS item
CROSS JOIN job INDEXED BY job_id ON job.queue = :queue AND job.id = item.value
WHERE 1
    AND job.state <> 'quarantined'
    AND job.state <> 'active'  -- guard: state
ORDER BY item.key

-- step: keys
UPDATE idempotency
SET until = :now + job.key_held_ms
FROM temp.touched
JOIN job ON job.n = touched.n
WHERE idempotency.queue = :queue
    AND idempotency.key = job.idempotency_key
    AND idempotency.job = job.id

-- step: children
DELETE FROM child
WHERE queue = :queue AND parent IN (SELECT job.id FROM temp.touched JOIN job ON job.n = touched.n)

-- step: change
DELETE FROM job WHERE n IN (SELECT n FROM temp.touched)
