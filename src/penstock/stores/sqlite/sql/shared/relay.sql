-- Word of endings for every job that waits for them; of jobs about to go unless they had ended well.
INSERT INTO relay (queue, number, target, what, body)
SELECT
    :queue,
    :relays + row_number() OVER (ORDER BY touched.i, parent.key),
    json_extract(parent.value, '$[0]'),
    'ended',
    json_object(
        'parent', json_extract(parent.value, '$[1]'),
        'child', json_array(:queue_name, job.id),
        'state', iif(:gone, NULL, job.state),
        'result', iif(:gone, NULL, job.result)
    )
FROM temp.touched
JOIN job ON job.n = touched.n
JOIN json_each(iif(json_valid(job.more), job.more, '{}'), '$.parents') AS parent
WHERE job.more IS NOT NULL
    AND iif(:gone, job.state <> 'completed', job.state IN ('completed', 'failed', 'dead', 'cancelled'))
