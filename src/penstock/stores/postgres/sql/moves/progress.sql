-- progress: active → active; the token must be current; the last value is kept
-- Items: id, token, value. A job gets an event, and with it a version, at most once in $6 ms.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS item (new_id, new_token, value, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*, coalesce(job.progress_at <= context.now - $6::bigint, true) AS tells
    -- include: named_jobs
            AND job.state = 'active'  -- guard: state
            AND job.token = item.new_token  -- guard: token
    -- include: lock_named_jobs
),
changed AS (
    UPDATE penstock.job SET
        progress = picked.value,
        progress_at = CASE WHEN picked.tells THEN context.now ELSE picked.progress_at END,
        version = picked.version + CASE WHEN picked.tells THEN 1 ELSE 0 END,
        stamp = CASE WHEN picked.tells THEN greatest(picked.stamp, pg_current_xact_id()) ELSE picked.stamp END
    FROM context
    CROSS JOIN picked
    WHERE job.ctid = picked.at
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        state AS to_state,
        NULL::bigint AS to_visible_at,
        NULL::text AS to_reason,
        NULL::text AS to_error,
        NULL::text AS to_fingerprint
    FROM (SELECT * FROM picked WHERE tells ORDER BY i) AS ordered
),
-- include: write_events, move=progress, lease=true, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, state, cancel_requested FROM picked
