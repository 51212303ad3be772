-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Moves up to $3 jobs and returns their keys. Callers that promote at the same time take different jobs.
-- include: context, free=NOT queue.has_keys
picked AS MATERIALIZED (
    SELECT job.at
    FROM context
    CROSS JOIN LATERAL (
        SELECT job.ctid AS at
        FROM penstock.job
        WHERE job.queue = $1
            AND job.state = 'delayed'  -- guard: state
            AND job.visible_at <= context.now  -- guard: due
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
        place = nextval((SELECT context.numbers FROM context)),
        visible_at = NULL
    FROM picked
    WHERE job.ctid = picked.at
    RETURNING job.*
),
written_events AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, source, target, task, priority, key
    )
    SELECT
        $1, changed.stamp, changed.place, context.now, 'promote', changed.id, changed.version, changed.drive, 'delayed',
        'pending', changed.task, changed.priority, changed.key
    FROM context
    CROSS JOIN changed
)
SELECT key FROM changed ORDER BY place
