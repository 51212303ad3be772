-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Moves up to $3 jobs. Whoever promotes at the same time takes others.
-- include: given
picked AS MATERIALIZED (
    SELECT job.*
    FROM given
    CROSS JOIN LATERAL (
        SELECT *
        FROM penstock.job
        WHERE job.queue = $1
            AND job.state = 'delayed'  -- guard: state
            AND job.visible_at <= given.now  -- guard: due
        ORDER BY job.visible_at, job.place
        LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ) AS job
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT given.numbers FROM given)) AS seq,
        'pending' AS to_state,
        NULL::bigint AS to_visible_at,
        NULL::text AS to_reason,
        NULL::text AS to_error,
        NULL::text AS to_fingerprint
    FROM (SELECT * FROM picked ORDER BY visible_at, place) AS ordered
),
changed AS (
    UPDATE penstock.job SET
        state = 'pending',
        version = after.version + 1,
        stamp = greatest(after.stamp, pg_current_xact_id()),
        place = after.seq,
        visible_at = NULL
    FROM after
    WHERE job.queue = $1
        AND job.id = after.id
),
-- include: event, move=promote, lease=false, faulty=false, drive=after.drive
SELECT count(*) FROM after
