-- redrive: failed / dead / cancelled → pending; to the back; attempts 0, drive + 1, policy and options kept
-- Items: ids. Where keys take turns, a job without a key, from before that mode, is left out: it would wait for ever.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[]) WITH ORDINALITY AS item (new_id, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT ended.at, ended.part, item.i
    FROM context
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT ended.ctid AS at, ended.tableoid AS part
        FROM penstock.ended
        WHERE ended.queue = $1
            AND ended.id = item.new_id
            AND ended.state IN ('failed', 'dead', 'cancelled')  -- guard: state
            AND NOT (context.has_keys AND ended.key IS NULL)
        FOR UPDATE
    ) AS ended
),
removed AS (
    DELETE FROM penstock.ended
    USING picked
    WHERE ended.ctid = picked.at
        AND ended.tableoid = picked.part
    RETURNING ended.*, picked.i
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        'pending' AS to_state,
        drive + 1 AS to_drive,
        NULL::bigint AS to_visible_at,
        NULL::text AS to_reason,
        NULL::text AS to_error,
        NULL::text AS to_fingerprint
    FROM (SELECT * FROM removed ORDER BY i) AS ordered
),
inserted AS (
    INSERT INTO penstock.job (
        queue, priority, version, drive, delivery, max_attempts, place, stamp, fence, enqueued_at, retention_ms,
        key_held_ms, progress_at, state, id, nonce, task, settled, options, worker, idempotency_key, key, progress,
        more, payload
    )
    SELECT
        $1, after.priority, after.version + 1, after.to_drive, after.delivery, after.max_attempts, after.seq,
        greatest(after.stamp, pg_current_xact_id()), after.fence, after.enqueued_at, after.retention_ms,
        after.key_held_ms, after.progress_at, after.to_state, after.id, after.nonce, after.task, after.settled,
        after.options, after.worker, after.idempotency_key, after.key, after.progress,
        (after.more::jsonb - 'unhandled_since')::text, after.payload
    FROM after
),
-- include: write_events, move=redrive, lease=false, faulty=false, reason=NULL, drive=after.to_drive, deadline=NULL
SELECT i, to_state, false, key FROM after
