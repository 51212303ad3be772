-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Moves up to $3 jobs; their keys come back. Whoever promotes at the same time takes others.
-- include: given, free=NOT queue.has_keys
picked AS MATERIALIZED (
    SELECT job.at
    FROM given
    CROSS JOIN LATERAL (
        SELECT job.ctid AS at
        FROM penstock.job
        WHERE job.queue = $1
            AND job.state = 'delayed'  -- guard: state
            AND job.visible_at <= given.now  -- guard: due
        ORDER BY job.visible_at, job.place
        LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ) AS job
),
changed AS (
    UPDATE penstock.job SET
        state = 'pending',
        version = job.version + 1,
        stamp = greatest(job.stamp, pg_current_xact_id()),
        place = nextval((SELECT given.numbers FROM given)),
        visible_at = NULL
    FROM picked
    WHERE job.ctid = picked.at
    RETURNING job.*
),
told AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, source, target, task, priority, key
    )
    SELECT
        $1, changed.stamp, changed.place, given.now, 'promote', changed.id, changed.version, changed.drive, 'delayed',
        'pending', changed.task, changed.priority, changed.key
    FROM given
    CROSS JOIN changed
)
SELECT key FROM changed ORDER BY place
