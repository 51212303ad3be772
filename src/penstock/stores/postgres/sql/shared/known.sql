-- Who stands instead of jobs that were not taken in. Items: id, nonce, idempotency key, digest.
SELECT
    mine.nonce = item.new_nonce, mine.state,
    held.job, theirs.state, held.digest = item.new_digest
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[])
    WITH ORDINALITY AS item (new_id, new_nonce, new_key, new_digest, i)
LEFT JOIN penstock.record AS mine ON mine.queue = $1 AND mine.id = item.new_id
LEFT JOIN penstock.idempotency AS held ON held.queue = $1 AND held.key = item.new_key
LEFT JOIN penstock.record AS theirs ON theirs.queue = $1 AND theirs.id = held.job AND held.until IS NULL
ORDER BY item.i
