-- Removes what belongs to the records in `after`: their children. Their idempotency keys and kinds stay until their time. Parents of
-- a job that did not complete get a relay entry: it might have been redriven, and now will not be.
keys AS (
    UPDATE penstock.idempotency SET until = held.until
    FROM (
        SELECT mine.at, context.now + after.key_held_ms AS until
        FROM context
        CROSS JOIN after
        CROSS JOIN LATERAL (
            SELECT idempotency.ctid AS at FROM penstock.idempotency
            WHERE idempotency.queue = $1 AND idempotency.key = after.idempotency_key AND idempotency.job = after.id
            OFFSET 0
        ) AS mine
    ) AS held
    WHERE idempotency.ctid = held.at
),
kinds AS (
    UPDATE penstock.kind SET is_left = true
    FROM (
        SELECT kind.at
        FROM after
        CROSS JOIN LATERAL (
            SELECT kind.ctid AS at FROM penstock.kind
            WHERE kind.queue = $1 AND kind.job = after.id
            FOR UPDATE SKIP LOCKED
        ) AS kind
        WHERE after.more IS NOT NULL
    ) AS theirs
    WHERE kind.ctid = theirs.at
),
children AS (
    DELETE FROM penstock.child
    USING (
        SELECT child.at
        FROM after
        CROSS JOIN LATERAL (
            SELECT child.ctid AS at FROM penstock.child
            WHERE child.queue = $1 AND child.parent = after.id
            OFFSET 0
        ) AS child
        WHERE after.more IS NOT NULL
    ) AS theirs
    WHERE child.ctid = theirs.at
),
relay_entries AS (
    INSERT INTO penstock.relay (queue, target, what, body)
    SELECT $1, entry.target, 'ended', entry.body
    FROM (
        SELECT
            parent.ref ->> 0 AS target,
            json_build_object(
                'parent', parent.ref ->> 1,
                'child', json_build_array((SELECT queue.name FROM penstock.queue WHERE queue.n = $1), after.id)
            )::text AS body
        FROM after
        CROSS JOIN LATERAL json_array_elements(after.more::json -> 'parents') WITH ORDINALITY AS parent (ref, k)
        WHERE after.more IS NOT NULL
            AND after.state <> 'completed'
        ORDER BY {order}, parent.k
    ) AS entry
),
