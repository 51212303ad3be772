-- Locks jobs, so that the next statement of the transaction sees the last change of each of them. Items: ids.
SELECT job.state
FROM (SELECT DISTINCT new_id FROM unnest($2::text[]) AS item (new_id) ORDER BY new_id) AS item
CROSS JOIN LATERAL (
    SELECT job.state FROM penstock.job WHERE job.queue = $1 AND job.id = item.new_id FOR UPDATE
) AS job
