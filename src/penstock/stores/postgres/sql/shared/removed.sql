-- What goes with the records in `after`: their children; their idempotency keys stay until their time.
keys AS (
    UPDATE penstock.idempotency SET until = held.until
    FROM (
        SELECT mine.at, given.now + after.key_held_ms AS until
        FROM given
        CROSS JOIN after
        CROSS JOIN LATERAL (
            SELECT idempotency.ctid AS at FROM penstock.idempotency
            WHERE idempotency.queue = $1 AND idempotency.key = after.idempotency_key AND idempotency.job = after.id
            OFFSET 0
        ) AS mine
    ) AS held
    WHERE idempotency.ctid = held.at
),
children AS (
    DELETE FROM penstock.child
    USING after
    WHERE child.queue = $1
        AND child.parent = after.id
),
