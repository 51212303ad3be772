-- Writes what `after` says of locked jobs: they stay among the live ones or move to the ended ones, and every parent of an ended job
-- gets a relay entry.
changed AS (
    UPDATE penstock.job SET
        state = after.to_state,
        version = after.version + 1,
        stamp = greatest(after.stamp, pg_current_xact_id()),
        attempts = after.to_attempts,
        place = {place},
        visible_at = after.to_visible_at,
        last_delay_ms = after.to_last_delay_ms,
        reason = after.to_reason,
        error = after.to_error,
        fingerprint = after.to_fingerprint,
        settled = after.to_settled,
        more = {more},
        token = NULL,
        deadline = NULL,
        lease_ms = NULL
    FROM after
    WHERE job.ctid = after.at
        AND after.to_state IN ('pending', 'delayed')
),
removed AS (
    DELETE FROM penstock.job
    USING after
    WHERE job.ctid = after.at
        AND after.to_state IN ('completed', 'failed', 'cancelled', 'dead')
),
ended_jobs AS (
    INSERT INTO penstock.ended (
        queue, priority, cancel_requested, version, drive, delivery, attempts, max_attempts, place, stamp, fence,
        enqueued_at, retention_ms, key_held_ms, last_delay_ms, progress_at, state, id, nonce, task, settled, options,
        worker, idempotency_key, key, reason, fingerprint, error, progress, more, payload, ended_at, prune_at, result
    )
    SELECT
        $1, after.priority, after.cancel_requested, after.version + 1, after.drive, after.delivery, after.to_attempts,
        after.max_attempts, after.seq, greatest(after.stamp, pg_current_xact_id()), after.fence, after.enqueued_at,
        after.retention_ms, after.key_held_ms, after.to_last_delay_ms, after.progress_at, after.to_state, after.id,
        after.nonce, after.task, after.to_settled, after.options, after.worker, after.idempotency_key, after.key,
        after.to_reason, after.to_fingerprint, after.to_error, after.progress, {more}, after.payload, context.now,
        context.now + after.retention_ms, after.to_result
    FROM context
    CROSS JOIN after
    WHERE after.to_state IN ('completed', 'failed', 'cancelled', 'dead')
),
relay_entries AS (
    INSERT INTO penstock.relay (queue, target, what, body)
    SELECT $1, entry.target, 'ended', entry.body
    FROM (
        SELECT
            parent.ref ->> 0 AS target,
            json_build_object(
                'parent', parent.ref ->> 1,
                'child', json_build_array((SELECT queue.name FROM penstock.queue WHERE queue.n = $1), after.id),
                'state', after.to_state,
                'result', after.to_result
            )::text AS body
        FROM after
        CROSS JOIN LATERAL json_array_elements(after.more::json -> 'parents') WITH ORDINALITY AS parent (ref, k)
        WHERE after.more IS NOT NULL
            AND after.to_state IN ('completed', 'failed', 'cancelled', 'dead')
        ORDER BY after.i, parent.k
    ) AS entry
),
