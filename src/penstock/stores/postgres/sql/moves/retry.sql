-- retry: active → delayed; the token must be current; attempts + 1; cancelled if that was asked for
-- Items: id, token, reason, error, fingerprint, delay in ms.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[])
        WITH ORDINALITY AS item (new_id, new_token, new_reason, new_error, new_fingerprint, delay_ms, i)
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
        attempts + 1 AS to_attempts,
        CASE WHEN NOT cancel_requested THEN now + delay_ms END AS to_visible_at,
        CASE WHEN cancel_requested THEN last_delay_ms ELSE delay_ms END AS to_last_delay_ms,
        CASE WHEN cancel_requested THEN {cancelled_reason} ELSE new_reason END AS to_reason,
        new_error AS to_error,
        new_fingerprint AS to_fingerprint,
        CASE WHEN cancel_requested THEN more ELSE (more::jsonb - 'unhandled_since')::text END AS to_more,
        NULL::text AS to_result,
        -- include: settlement_note, move=retry, state=CASE WHEN cancel_requested THEN 'cancelled' ELSE 'delayed' END
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.to_more, place=after.seq
-- include: write_events, move=retry, lease=true, faulty=true, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
