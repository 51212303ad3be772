-- What goes with the records in `after`: their children; their idempotency keys stay until their time.
keys AS (
    UPDATE penstock.idempotency SET until = given.now + after.key_held_ms
    FROM given
    CROSS JOIN after
    WHERE idempotency.queue = $1
        AND idempotency.key = after.idempotency_key
        AND idempotency.job = after.id
),
children AS (
    DELETE FROM penstock.child
    USING after
    WHERE child.queue = $1
        AND child.parent = after.id
),
