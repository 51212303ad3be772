-- Who stands instead of jobs that were not taken in. Items: id, nonce, idempotency key, digest.
SELECT mine.nonce = item.new_nonce, mine.state, held.job, theirs.state, held.digest = item.new_digest
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[])
    WITH ORDINALITY AS item (new_id, new_nonce, new_key, new_digest, i)
LEFT JOIN LATERAL (
    SELECT * FROM penstock.record WHERE record.queue = $1 AND record.id = item.new_id LIMIT 1
) AS mine ON true
LEFT JOIN LATERAL (
    SELECT * FROM penstock.idempotency
    WHERE idempotency.queue = $1 AND idempotency.key = item.new_key LIMIT 1
) AS held ON true
LEFT JOIN LATERAL (
    SELECT * FROM penstock.record
    WHERE record.queue = $1 AND record.id = held.job AND held.until IS NULL LIMIT 1
) AS theirs ON true
ORDER BY item.i
