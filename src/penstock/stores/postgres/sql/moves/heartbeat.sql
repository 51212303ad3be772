-- heartbeat: active → active; the token must be current and the deadline ahead; deadline = max(old, now + lease)
-- Items: id, token. $5 is the lease in ms. No event is written, so the version stays.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS item (new_id, new_token, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.at, item.i, context.now
    -- include: named_jobs
            AND job.state = 'active'  -- guard: state
            AND job.token = item.new_token  -- guard: token
            AND job.deadline > context.now AND job.deadline <= context.now + coalesce(job.lease_ms, {longest_lease_ms}) + {clock_step_ms}  -- guard: held
    -- include: lock_named_jobs
)
UPDATE penstock.job SET
    deadline = greatest(job.deadline, picked.now + $5::bigint),
    lease_ms = greatest(job.lease_ms, $5::bigint)
FROM picked
WHERE job.ctid = picked.at
RETURNING picked.i, job.state, job.cancel_requested
