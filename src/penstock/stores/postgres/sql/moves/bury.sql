-- bury: active → dead; the token must be current; attempts + 1 unless none could begin; cancelled if that was asked for
-- Items: id, token, reason, error, fingerprint, 1 or 0 attempts.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[])
        WITH ORDINALITY AS item (new_id, new_token, new_reason, new_error, new_fingerprint, new_attempts, i)
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
        CASE WHEN cancel_requested THEN 'cancelled' ELSE 'dead' END AS to_state,
        attempts + new_attempts AS to_attempts,
        NULL::bigint AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        CASE WHEN cancel_requested THEN {cancelled_reason} ELSE new_reason END AS to_reason,
        new_error AS to_error,
        new_fingerprint AS to_fingerprint,
        NULL::text AS to_result,
        -- include: settlement_note, move=bury, state=CASE WHEN cancel_requested THEN 'cancelled' ELSE 'dead' END
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.more, place=after.seq
-- include: write_events, move=bury, lease=true, faulty=true, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
