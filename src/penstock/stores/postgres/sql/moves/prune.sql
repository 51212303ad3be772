-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Removes up to $3 jobs, the oldest first, from the time $4 on, and forgets keys, kinds and rates whose time is over.
-- include: context, free=true
picked AS MATERIALIZED (
    SELECT done.at
    FROM context
    CROSS JOIN LATERAL (
        SELECT done.ctid AS at
        FROM penstock.done
        WHERE done.queue = $1
            AND done.state IN ('completed', 'failed', 'cancelled')  -- guard: state
            AND done.prune_at >= 0
            AND done.prune_at >= $4::bigint
            AND done.prune_at <= context.now  -- guard: kept
        ORDER BY done.prune_at, done.id
        LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ) AS done
),
after AS (
    DELETE FROM penstock.done
    USING picked
    WHERE done.ctid = picked.at
    RETURNING done.*
),
-- include: remove_records, order=(after.prune_at,after.id)
expired_keys AS (
    DELETE FROM penstock.idempotency
    USING context
    WHERE idempotency.queue = $1
        AND idempotency.until <= context.now
),
expired_kinds AS (
    DELETE FROM penstock.kind
    USING (
        SELECT kind_row.at
        FROM context
        CROSS JOIN LATERAL (
            SELECT kind.ctid AS at FROM penstock.kind
            WHERE kind.queue = $1 AND kind.is_left AND kind.until <= context.now
            FOR UPDATE SKIP LOCKED
        ) AS kind_row
    ) AS kind_rows
    WHERE kind.ctid = kind_rows.at
),
expired_rates AS (
    DELETE FROM penstock.key_rate
    USING (
        SELECT rate_row.at
        FROM context
        CROSS JOIN LATERAL (
            SELECT key_rate.ctid AS at FROM penstock.key_rate
            WHERE key_rate.queue = $1 AND key_rate.arrival_us <= context.now_us
            FOR UPDATE SKIP LOCKED
        ) AS rate_row
    ) AS rate_rows
    WHERE key_rate.ctid = rate_rows.at
),
written_events AS (
    INSERT INTO penstock.event (queue, stamp, seq, at, move, jobs)
    SELECT
        $1, greatest(max(after.stamp), pg_current_xact_id()), nextval((SELECT context.numbers FROM context)), max(context.now), 'prune',
        array_agg(after.id ORDER BY after.prune_at, after.id)
    FROM context
    CROSS JOIN after
    HAVING count(*) > 0
    RETURNING event.seq
),
removed_counts AS (
    INSERT INTO penstock.removed_count (queue, seq, state, many)
    SELECT $1, written_events.seq, after.state, count(*)
    FROM written_events
    CROSS JOIN after
    GROUP BY written_events.seq, after.state
)
SELECT count(*), max(after.prune_at), EXISTS (SELECT 1 FROM context) FROM after
