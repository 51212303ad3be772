-- release: active → pending; the token must be current; to the front; no attempt used; cancelled if that was asked for
-- Items: id, token, what the handler said of a cancel. The job that was put to the front last is claimed first.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS item (new_id, new_token, new_error, i)
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
        CASE WHEN cancel_requested THEN 'cancelled' ELSE 'pending' END AS to_state,
        attempts AS to_attempts,
        NULL::bigint AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        CASE WHEN cancel_requested THEN {cancelled_reason} ELSE reason END AS to_reason,
        CASE WHEN cancel_requested THEN coalesce(new_error, error) ELSE error END AS to_error,
        fingerprint AS to_fingerprint,
        NULL::text AS to_result,
        -- include: settlement_note, move=release, state=CASE WHEN cancel_requested THEN 'cancelled' ELSE 'pending' END
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: write_jobs, more=after.more, place=-after.seq
-- include: write_events, move=release, lease=true, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
