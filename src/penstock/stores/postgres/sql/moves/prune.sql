-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Takes up to $3 jobs, the oldest first, from the time $4 on, and forgets keys, kinds and rates whose time is over.
-- include: given, free=true
picked AS MATERIALIZED (
    SELECT done.at
    FROM given
    CROSS JOIN LATERAL (
        SELECT done.ctid AS at
        FROM penstock.done
        WHERE done.queue = $1
            AND done.state IN ('completed', 'failed', 'cancelled')  -- guard: state
            AND done.prune_at >= 0
            AND done.prune_at >= $4::bigint
            AND done.prune_at <= given.now  -- guard: kept
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
-- include: removed, order=(after.prune_at,after.id)
over AS (
    DELETE FROM penstock.idempotency
    USING given
    WHERE idempotency.queue = $1
        AND idempotency.until <= given.now
),
over_kinds AS (
    DELETE FROM penstock.kind
    USING (
        SELECT left_one.at
        FROM given
        CROSS JOIN LATERAL (
            SELECT kind.ctid AS at FROM penstock.kind
            WHERE kind.queue = $1 AND kind.is_left AND kind.until <= given.now
            FOR UPDATE SKIP LOCKED
        ) AS left_one
    ) AS left_ones
    WHERE kind.ctid = left_ones.at
),
over_rates AS (
    DELETE FROM penstock.key_rate
    USING (
        SELECT used.at
        FROM given
        CROSS JOIN LATERAL (
            SELECT key_rate.ctid AS at FROM penstock.key_rate
            WHERE key_rate.queue = $1 AND key_rate.arrival_us <= given.now_us
            FOR UPDATE SKIP LOCKED
        ) AS used
    ) AS used_up
    WHERE key_rate.ctid = used_up.at
),
told AS (
    INSERT INTO penstock.event (queue, stamp, seq, at, move, jobs)
    SELECT
        $1, greatest(max(after.stamp), pg_current_xact_id()), nextval((SELECT given.numbers FROM given)), max(given.now), 'prune',
        array_agg(after.id ORDER BY after.prune_at, after.id)
    FROM given
    CROSS JOIN after
    HAVING count(*) > 0
)
SELECT count(*), max(after.prune_at), EXISTS (SELECT 1 FROM given) FROM after
