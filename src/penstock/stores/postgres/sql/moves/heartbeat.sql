-- heartbeat: active → active; the token must be current and the deadline ahead; deadline = max(old, now + lease)
-- Items: id, token. $5 is the lease in ms. Writes no event, so the version stays.
-- include: given, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS item (new_id, new_token, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.at, item.i, given.now
    FROM given
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT job.ctid AS seen FROM penstock.job WHERE job.queue = $1 AND job.id = item.new_id OFFSET 0
    ) AS old
    CROSS JOIN LATERAL (
        SELECT job.*, job.ctid AS at
        FROM penstock.job
        WHERE job.ctid = old.seen
            AND job.state = 'active'  -- guard: state
            AND job.token = item.new_token  -- guard: token
            AND job.deadline > given.now AND job.deadline <= given.now + coalesce(job.lease_ms, 3600000) + 60000  -- guard: held
        FOR UPDATE
    ) AS job
    WHERE job.at = old.seen
)
UPDATE penstock.job SET
    deadline = greatest(job.deadline, picked.now + $5::bigint),
    lease_ms = greatest(job.lease_ms, $5::bigint)
FROM picked
WHERE job.ctid = picked.at
RETURNING picked.i, job.state, job.cancel_requested
