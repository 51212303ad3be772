-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Takes up to :limit jobs, the oldest first, and forgets keys whose time is over.
-- step: pick
INSERT INTO temp.touched (n, source, value)
SELECT n, state, id
FROM job
WHERE queue = :queue
    AND state IN ('completed', 'failed', 'cancelled')  -- guard: state
    AND prune_at <= :now  -- guard: kept
ORDER BY prune_at, id
LIMIT :limit

-- step: keys
UPDATE idempotency
SET until = :now + job.key_held_ms
FROM temp.touched
JOIN job ON job.n = touched.n
WHERE idempotency.queue = :queue
    AND idempotency.key = job.idempotency_key
    AND idempotency.job = job.id

-- step: change
DELETE FROM job WHERE n IN (SELECT n FROM temp.touched)

-- step: forget
DELETE FROM idempotency
WHERE queue = :queue AND until <= :now
