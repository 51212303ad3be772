-- fail: active → failed; the token must be current
-- Items: id, token, reason, error, fingerprint.
-- include: given, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS item (new_id, new_token, new_reason, new_error, new_fingerprint, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*, given.now
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
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT given.numbers FROM given)) AS seq,
        'failed' AS to_state,
        attempts AS to_attempts,
        NULL::bigint AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        new_reason AS to_reason,
        new_error AS to_error,
        new_fingerprint AS to_fingerprint,
        NULL::text AS to_result,
        right(settled || token || ':fail:' || 'failed' || ' ', 2000) AS to_settled
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
-- include: moved, more=after.more, place=after.seq
-- include: event, move=fail, lease=true, faulty=true, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, false, key FROM after
