-- progress: active → active; the token must be current; the last value is kept
-- Items: id, token, value. An event, and with it a version, at most once in $6 ms.
-- include: given, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS item (new_id, new_token, value, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*, coalesce(job.progress_at <= given.now - $6::bigint, true) AS tells
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
        FOR UPDATE
    ) AS job
    WHERE job.at = old.seen
),
changed AS (
    UPDATE penstock.job SET
        progress = picked.value,
        progress_at = CASE WHEN picked.tells THEN given.now ELSE picked.progress_at END,
        version = picked.version + CASE WHEN picked.tells THEN 1 ELSE 0 END,
        stamp = CASE WHEN picked.tells THEN greatest(picked.stamp, pg_current_xact_id()) ELSE picked.stamp END
    FROM given
    CROSS JOIN picked
    WHERE job.ctid = picked.at
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT given.numbers FROM given)) AS seq,
        state AS to_state,
        NULL::bigint AS to_visible_at,
        NULL::text AS to_reason,
        NULL::text AS to_error,
        NULL::text AS to_fingerprint
    FROM (SELECT * FROM picked WHERE tells ORDER BY i) AS ordered
),
-- include: event, move=progress, lease=true, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, state, cancel_requested FROM picked
