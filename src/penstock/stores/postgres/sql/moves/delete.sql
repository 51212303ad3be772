-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Items: ids. One event is written for all of them; it has the version of the job if there is only one.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT DISTINCT ON (new_id) new_id, i
    FROM unnest($3::text[]) WITH ORDINALITY AS item (new_id, i)
    ORDER BY new_id, i
),
live_rows AS MATERIALIZED (
    SELECT job.at, item.i
    FROM context
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT job.ctid AS at
        FROM penstock.job
        WHERE job.queue = $1
            AND job.id = item.new_id
            AND job.state <> 'quarantined'
            AND job.state <> 'active'  -- guard: state
        FOR UPDATE
    ) AS job
),
ended_rows AS MATERIALIZED (
    SELECT ended.at, ended.part, item.i
    FROM context
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT ended.ctid AS at, ended.tableoid AS part
        FROM penstock.ended
        WHERE ended.queue = $1
            AND ended.id = item.new_id
        FOR UPDATE
    ) AS ended
),
removed_live AS (
    DELETE FROM penstock.job
    USING live_rows
    WHERE job.ctid = live_rows.at
    RETURNING
        job.id, job.state, job.version, job.drive, job.stamp, job.task, job.priority, job.key, job.visible_at, job.error,
        job.fingerprint, job.idempotency_key, job.key_held_ms, job.more, live_rows.i
),
removed_ended AS (
    DELETE FROM penstock.ended
    USING ended_rows
    WHERE ended.ctid = ended_rows.at
        AND ended.tableoid = ended_rows.part
    RETURNING
        ended.id, ended.state, ended.version, ended.drive, ended.stamp, ended.task, ended.priority, ended.key, ended.visible_at, ended.error,
        ended.fingerprint, ended.idempotency_key, ended.key_held_ms, ended.more, ended_rows.i
),
after AS MATERIALIZED (
    SELECT * FROM removed_live UNION ALL SELECT * FROM removed_ended
),
-- include: remove_records, order=after.i
written_events AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, reason, job, version, drive, source, task, priority, key,
        visible_at, error, fingerprint, jobs
    )
    SELECT
        $1, greatest(max(after.stamp), pg_current_xact_id()), nextval((SELECT context.numbers FROM context)), max(context.now), 'delete',
        {deleted_reason},
        CASE WHEN count(*) = 1 THEN max(after.id) END,
        CASE WHEN count(*) = 1 THEN max(after.version) + 1 END,
        CASE WHEN count(*) = 1 THEN max(after.drive) END,
        CASE WHEN count(*) = 1 THEN max(after.state) END,
        CASE WHEN count(*) = 1 THEN max(after.task) END,
        CASE WHEN count(*) = 1 THEN max(after.priority) END,
        CASE WHEN count(*) = 1 THEN max(after.key) END,
        CASE WHEN count(*) = 1 THEN max(after.visible_at) END,
        CASE WHEN count(*) = 1 AND max(after.state) = 'cancelled' THEN left(split_part(max(after.error), E'\n', 1), {error_chars}) END,
        CASE WHEN count(*) = 1 AND max(after.state) = 'cancelled' THEN max(after.fingerprint) END,
        CASE WHEN count(*) > 1 THEN array_agg(after.id ORDER BY after.i) END
    FROM context
    CROSS JOIN after
    HAVING count(*) > 0
    RETURNING event.seq, event.job
),
removed_counts AS (
    INSERT INTO penstock.removed_count (queue, seq, state, many)
    SELECT $1, written_events.seq, after.state, count(*)
    FROM written_events
    CROSS JOIN after
    WHERE written_events.job IS NULL
    GROUP BY written_events.seq, after.state
)
SELECT i, state, false, key FROM after
