-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Takes up to $3 jobs, the oldest first, and forgets keys whose time is over.
-- include: given
picked AS MATERIALIZED (
    SELECT done.at
    FROM given
    CROSS JOIN LATERAL (
        SELECT done.ctid AS at
        FROM penstock.done
        WHERE done.queue = $1
            AND done.state IN ('completed', 'failed', 'cancelled')  -- guard: state
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
told AS (
    INSERT INTO penstock.event (queue, stamp, seq, at, move, jobs)
    SELECT
        $1, greatest(max(after.stamp), pg_current_xact_id()), nextval((SELECT given.numbers FROM given)), max(given.now), 'prune',
        array_agg(after.id ORDER BY after.prune_at, after.id)
    FROM given
    CROSS JOIN after
    HAVING count(*) > 0
)
SELECT count(*) FROM after
