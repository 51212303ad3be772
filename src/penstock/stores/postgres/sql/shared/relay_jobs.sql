-- Relay entries for jobs of other queues, written with the jobs of this one. Items: queue, job.
INSERT INTO penstock.relay (queue, target, what, body)
SELECT $1, item.target, 'spawn', item.body
FROM (
    SELECT * FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS item (target, body, k) ORDER BY k
) AS item
