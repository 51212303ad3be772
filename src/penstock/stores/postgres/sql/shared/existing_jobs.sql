-- The jobs that hold the ids, idempotency keys and kinds of jobs to be enqueued. Items: id, idempotency key, kind, payload. $2 is
-- the time in ms.
SELECT
    mine.nonce, nullif(mine.state, 'quarantined'), held.job, nullif(theirs.state, 'quarantined'), held.digest, kind.job,
    kind.since, nullif(one.state, 'quarantined'), one.task, one.more,
    one.payload = item.new_payload
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[])
    WITH ORDINALITY AS item (new_id, new_key, new_kind, new_payload, i)
LEFT JOIN LATERAL (
    SELECT record.nonce, record.state FROM penstock.record WHERE record.queue = $1 AND record.id = item.new_id LIMIT 1
) AS mine ON true
LEFT JOIN LATERAL (
    SELECT * FROM penstock.idempotency
    WHERE idempotency.queue = $1
        AND idempotency.key = item.new_key
        AND (idempotency.until IS NULL OR idempotency.until > $2::bigint)
    LIMIT 1
) AS held ON true
LEFT JOIN LATERAL (
    SELECT record.state FROM penstock.record
    WHERE record.queue = $1 AND record.id = held.job AND held.until IS NULL LIMIT 1
) AS theirs ON true
LEFT JOIN LATERAL (
    SELECT * FROM penstock.kind WHERE kind.queue = $1 AND kind.key = item.new_kind LIMIT 1
) AS kind ON true
LEFT JOIN LATERAL (
    SELECT record.state, record.task, record.more, record.payload FROM penstock.record
    WHERE record.queue = $1 AND record.id = kind.job LIMIT 1
) AS one ON true
ORDER BY item.i
