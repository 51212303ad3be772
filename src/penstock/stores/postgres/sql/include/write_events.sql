-- Writes one event for every row of `after`.
written_events AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, source, target, task, priority, key,
        delivery, attempt, fence, worker, deadline, visible_at, reason, error, fingerprint
    )
    SELECT
        $1, greatest(after.stamp, pg_current_xact_id()), after.seq, context.now, '{move}', after.id, after.version + 1,
        {drive}, after.state, after.to_state, after.task, after.priority, after.key,
        CASE WHEN {lease} THEN after.delivery END,
        CASE WHEN {lease} THEN after.attempts + 1 END,
        CASE WHEN {lease} THEN after.fence END,
        CASE WHEN {lease} THEN after.worker END,
        {deadline},
        CASE WHEN after.to_state = 'delayed' THEN after.to_visible_at END,
        CASE WHEN {faulty} OR after.to_state = 'cancelled' THEN after.to_reason ELSE {reason} END,
        CASE WHEN {faulty} OR after.to_state = 'cancelled' THEN left(split_part(after.to_error, E'\n', 1), {error_chars}) END,
        CASE WHEN {faulty} OR after.to_state = 'cancelled' THEN after.to_fingerprint END
    FROM context
    CROSS JOIN after
)
