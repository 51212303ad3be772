-- What is known of the jobs that were not touched: state and settlement notes, null where there is none.
SELECT json_group_array(json_array(nullif(job.state, 'quarantined'), job.settled))
FROM (SELECT value AS id FROM json_each(:ids) ORDER BY key) AS asked
LEFT JOIN job ON job.queue = :queue AND job.id = asked.id
