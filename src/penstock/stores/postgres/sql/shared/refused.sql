-- What the records say of jobs that a move did not change: state, settlement notes, token and cancel request, in the order of the
-- items, and whether keys take turns. Items: ids.
SELECT nullif(record.state, 'quarantined'), record.settled, record.token, record.cancel_requested,
    (SELECT queue.has_keys FROM penstock.queue WHERE queue.n = $1)
FROM unnest($2::text[]) WITH ORDINALITY AS item (new_id, i)
LEFT JOIN LATERAL (
    SELECT * FROM penstock.record WHERE record.queue = $1 AND record.id = item.new_id LIMIT 1
) AS record ON true
ORDER BY item.i
