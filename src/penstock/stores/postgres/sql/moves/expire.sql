-- expire: active → delayed / dead / pending; the token must be current and the deadline passed; attempts + 1; cancelled if that was asked for
-- Items: id, token, target, reason, error, fingerprint, delay in ms.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[])
        WITH ORDINALITY AS item (new_id, new_token, new_state, new_reason, new_error, new_fingerprint, delay_ms, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*, context.now
    -- include: named_jobs
            AND job.state = 'active'  -- guard: state
            AND job.token = item.new_token  -- guard: token
            AND (job.deadline <= context.now OR job.deadline > context.now + coalesce(job.lease_ms, {longest_lease_ms}) + {clock_step_ms})  -- guard: expired
    -- include: lock_named_jobs
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        CASE WHEN cancel_requested THEN 'cancelled' ELSE new_state END AS to_state,
        attempts + 1 AS to_attempts,
        CASE WHEN new_state = 'delayed' AND NOT cancel_requested THEN now + delay_ms END AS to_visible_at,
        CASE WHEN new_state = 'delayed' AND NOT cancel_requested THEN delay_ms ELSE last_delay_ms END AS to_last_delay_ms,
        CASE WHEN cancel_requested THEN {cancelled_reason} ELSE new_reason END AS to_reason,
        new_error AS to_error,
        new_fingerprint AS to_fingerprint,
        CASE WHEN cancel_requested THEN more ELSE (more::jsonb - 'unhandled_since')::text END AS to_more,
        NULL::text AS to_result,
        settled AS to_settled
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.to_more, place=CASE WHEN after.to_state = 'pending' THEN -after.seq ELSE after.seq END
-- include: write_events, move=expire, lease=true, faulty=true, reason=NULL, drive=after.drive, deadline=after.deadline
SELECT i, to_state, false, key FROM after
