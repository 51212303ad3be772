-- What is known of jobs that a move did not touch: state and settlement notes, in the order asked for.
SELECT record.state, record.settled
FROM unnest($2::text[]) WITH ORDINALITY AS item (new_id, i)
LEFT JOIN penstock.record ON record.queue = $1 AND record.id = item.new_id
ORDER BY item.i
