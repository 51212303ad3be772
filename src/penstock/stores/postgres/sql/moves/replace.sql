-- replace: pending / delayed → pending / delayed; new payload and visible_at
-- Items: id, payload, visible_at or null, state, headers as text or null. The jobs go to the back.
-- include: context, free=queue.is_plain
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[])
        WITH ORDINALITY AS item (new_id, new_payload, to_visible_at, to_state, new_headers, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*
    -- include: named_jobs
            AND job.state IN ('pending', 'delayed')  -- guard: state
    -- include: lock_named_jobs
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        reason AS to_reason,
        error AS to_error,
        fingerprint AS to_fingerprint
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
changed AS (
    UPDATE penstock.job SET
        state = after.to_state,
        version = after.version + 1,
        stamp = greatest(after.stamp, pg_current_xact_id()),
        place = after.seq,
        visible_at = after.to_visible_at,
        payload = after.new_payload,
        more = CASE
            WHEN after.new_headers IS NULL THEN (after.more::jsonb - 'headers')::text
            ELSE (after.more::jsonb || jsonb_build_object('headers', after.new_headers::jsonb))::text
        END
    FROM after
    WHERE job.ctid = after.at
),
-- include: write_events, move=replace, lease=false, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, key FROM after ORDER BY i
