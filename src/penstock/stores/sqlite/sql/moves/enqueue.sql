-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Rows, bound by position after the queue's number, the time and the newest place: index, id, nonce, task, state,
-- priority, visible_at, idempotency key, key, options, max_attempts, retention in ms, time in ms that the key is
-- held after the record went, payload, more. Items, only where there are keys: [id, nonce, idempotency key, digest].
-- step: free_keys
DELETE FROM idempotency
WHERE queue = :queue
    AND key IN (SELECT json_extract(value, '$[2]') FROM json_each(:items))
    AND until <= :now

-- step: take_keys
INSERT OR IGNORE INTO idempotency (queue, key, job, digest)
SELECT :queue, json_extract(value, '$[2]'), json_extract(value, '$[0]'), json_extract(value, '$[3]')
FROM json_each(:items)
WHERE json_extract(value, '$[2]') IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.queue = :queue AND job.id = json_extract(value, '$[0]'))
ORDER BY key

-- step: change
INSERT OR IGNORE INTO job (
    queue, id, nonce, task, state, priority, place, enqueued_at, visible_at, idempotency_key, key, options,
    max_attempts, retention_ms, key_held_ms, payload, more
)
WITH given (queue, now, place) AS (VALUES (?, ?, ?)),
new (
    i, id, nonce, task, state, priority, visible_at, idempotency_key, key, options, max_attempts, retention_ms,
    key_held_ms, payload, more
) AS (VALUES {rows})
SELECT
    given.queue, id, nonce, task, state, priority, given.place + i + 1, given.now, visible_at, idempotency_key,
    key, options, max_attempts, retention_ms, key_held_ms, payload, more
FROM given
CROSS JOIN new
WHERE idempotency_key IS NULL
    OR id = (
        SELECT job FROM idempotency
        WHERE queue = given.queue AND idempotency.key = new.idempotency_key AND until IS NULL
    )

-- step: event
INSERT INTO event (
    queue, seq, at, move, job, version, drive, target, task, priority, key, visible_at, idempotency_key,
    max_attempts, parent, schedule, instant
)
SELECT
    :queue, :seq + n - :last_n, :now, 'enqueue', id, version, drive, state, task, priority,
    key, visible_at, idempotency_key, max_attempts,
    CASE
        WHEN json_extract(more, '$.parents[0]') IS NOT NULL
        THEN json_extract(more, '$.parents[0][0]') || '/' || json_extract(more, '$.parents[0][1]')
    END,
    json_extract(more, '$.schedule'), json_extract(more, '$.instant')
FROM job
WHERE n > :last_n
ORDER BY n

-- step: answer
SELECT json_group_array(json_array(
    mine.nonce = json_extract(item.value, '$[1]'),
    nullif(mine.state, 'quarantined'),
    held.job,
    nullif(theirs.state, 'quarantined'),
    held.digest = json_extract(item.value, '$[3]')
))
FROM (SELECT key, value FROM json_each(:items) ORDER BY key) AS item
LEFT JOIN job AS mine ON mine.queue = :queue AND mine.id = json_extract(item.value, '$[0]')
LEFT JOIN idempotency AS held ON held.queue = :queue AND held.key = json_extract(item.value, '$[2]')
LEFT JOIN job AS theirs ON theirs.queue = :queue AND theirs.id = held.job AND held.until IS NULL
