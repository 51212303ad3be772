-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Items: [id, nonce, task, payload, priority, delay in ms, run_at, idempotency key, key, options, max_attempts,
-- retention in ms, time in ms that the key is held after the ending, digest].
-- step: free_keys
DELETE FROM idempotency
WHERE queue = :queue
    AND key IN (SELECT json_extract(value, '$[7]') FROM json_each(:items))
    AND :now >= coalesce(
        (SELECT iif(ended_at IS NULL, :now + 1, ended_at + key_held_ms) FROM job
         WHERE job.queue = :queue AND job.id = idempotency.job),
        until
    )

-- step: take_keys
INSERT OR IGNORE INTO idempotency (queue, key, job, digest)
SELECT :queue, json_extract(value, '$[7]'), json_extract(value, '$[0]'), json_extract(value, '$[13]')
FROM json_each(:items)
WHERE json_extract(value, '$[7]') IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.queue = :queue AND job.id = json_extract(value, '$[0]'))
ORDER BY key

-- step: change
INSERT OR IGNORE INTO job (
    queue, id, nonce, task, state, priority, place, enqueued_at, visible_at, retention_ms, key_held_ms,
    idempotency_key, key, options, payload
)
SELECT
    :queue, id, nonce, task, iif(visible_at > :now, 'delayed', 'pending'), priority, :place + i + 1, :now,
    iif(visible_at > :now, visible_at, NULL), retention_ms, key_held_ms, idempotency_key, concurrency_key,
    options, payload
FROM (
    SELECT
        key AS i,
        json_extract(value, '$[0]') AS id,
        json_extract(value, '$[1]') AS nonce,
        json_extract(value, '$[2]') AS task,
        json_extract(value, '$[3]') AS payload,
        json_extract(value, '$[4]') AS priority,
        coalesce(json_extract(value, '$[6]'), :now + json_extract(value, '$[5]')) AS visible_at,
        json_extract(value, '$[7]') AS idempotency_key,
        json_extract(value, '$[8]') AS concurrency_key,
        json_extract(value, '$[9]') AS options,
        json_extract(value, '$[11]') AS retention_ms,
        json_extract(value, '$[12]') AS key_held_ms
    FROM json_each(:items)
)
WHERE idempotency_key IS NULL
    OR id = (SELECT job FROM idempotency WHERE queue = :queue AND idempotency.key = idempotency_key)
ORDER BY i

-- step: event
INSERT INTO event (
    queue, seq, at, move, job, version, drive, target, task, priority, key, visible_at, idempotency_key, max_attempts
)
SELECT
    :queue, :seq + row_number() OVER (ORDER BY n), :now, 'enqueue', id, version, drive, state, task, priority, key,
    visible_at, idempotency_key, coalesce(json_extract(options, '$.max_attempts'), :max_attempts)
FROM job
WHERE n > :last_n
ORDER BY n

-- step: answer
SELECT json_group_array(json_array(
    mine.nonce = json_extract(item.value, '$[1]'),
    mine.state,
    held.job,
    theirs.state,
    held.digest = json_extract(item.value, '$[13]')
))
FROM (SELECT key, value FROM json_each(:items) ORDER BY key) AS item
LEFT JOIN job AS mine ON mine.queue = :queue AND mine.id = json_extract(item.value, '$[0]')
LEFT JOIN idempotency AS held ON held.queue = :queue AND held.key = json_extract(item.value, '$[7]')
LEFT JOIN job AS theirs ON theirs.queue = :queue AND theirs.id = held.job
