-- replace: pending / delayed → pending / delayed; new payload and visible_at
-- Items: id, payload, visible_at or null, state. To the back.
-- include: given, free=queue.is_plain
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[])
        WITH ORDINALITY AS item (new_id, new_payload, to_visible_at, to_state, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*
    FROM given
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT job.ctid AS seen FROM penstock.job WHERE job.queue = $1 AND job.id = item.new_id OFFSET 0
    ) AS old
    CROSS JOIN LATERAL (
        SELECT job.*, job.ctid AS at
        FROM penstock.job
        WHERE job.ctid = old.seen
            AND job.state IN ('pending', 'delayed')  -- guard: state
        FOR UPDATE
    ) AS job
    WHERE job.at = old.seen
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT given.numbers FROM given)) AS seq,
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
        payload = after.new_payload
    FROM after
    WHERE job.ctid = after.at
),
-- include: event, move=replace, lease=false, faulty=false, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, key FROM after ORDER BY i
