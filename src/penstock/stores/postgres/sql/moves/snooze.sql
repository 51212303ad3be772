-- snooze: active → delayed; the token must be current; no attempt used; cancelled if that was asked for
-- Items: id, token, delay in ms, the reason why no handler could run the job.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[])
        WITH ORDINALITY AS item (new_id, new_token, delay_ms, new_reason, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*, context.now
    -- include: named_jobs
            AND job.state = 'active'  -- guard: state
            AND job.token = item.new_token  -- guard: token
    -- include: lock_named_jobs
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        CASE WHEN cancel_requested THEN 'cancelled' ELSE 'delayed' END AS to_state,
        attempts AS to_attempts,
        CASE WHEN NOT cancel_requested THEN now + delay_ms END AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        CASE WHEN cancel_requested THEN {cancelled_reason} ELSE coalesce(new_reason, reason) END AS to_reason,
        error AS to_error,
        fingerprint AS to_fingerprint,
        CASE
            WHEN cancel_requested THEN more
            WHEN new_reason IS NULL THEN (more::jsonb - 'unhandled_since')::text
            ELSE (jsonb_build_object('unhandled_since', now) || coalesce(more, '{}')::jsonb)::text
        END AS to_more,
        NULL::text AS to_result,
        -- include: settlement_note, move=snooze, state=CASE WHEN cancel_requested THEN 'cancelled' ELSE 'delayed' END
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.to_more, place=after.seq
-- include: write_events, move=snooze, lease=true, faulty=false, reason=after.new_reason, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
