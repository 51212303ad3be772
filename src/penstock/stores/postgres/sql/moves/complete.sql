-- complete: active → completed; the token must be current
-- Items: id, token, result.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS item (new_id, new_token, new_result, i)
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
        'completed' AS to_state,
        attempts AS to_attempts,
        NULL::bigint AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        NULL::text AS to_reason,
        NULL::text AS to_error,
        NULL::text AS to_fingerprint,
        new_result AS to_result,
        -- include: settlement_note, move=complete, state='completed'
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.more, place=after.seq
-- include: write_events, move=complete, lease=true, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
