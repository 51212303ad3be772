-- Writes what a claim used up of rates and lanes. $2 is the arrival time of the queue's rate in µs; $3 the turn of the lane served
-- last and $4 how many lanes were numbered, both null where no key was served. Items: key, the lane's next turn, its number, the
-- time until which it is held back, the next arrival time of the key's rate or null, whether the key could be served again.
WITH item AS MATERIALIZED (
    SELECT item.*, lane.at
    FROM unnest($5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::boolean[])
        AS item (key, turn, number, held_until, arrival_us, is_ready)
    CROSS JOIN LATERAL (
        SELECT lane.ctid AS at FROM penstock.lane WHERE lane.queue = $1 AND lane.key = item.key OFFSET 0
    ) AS lane
),
closed AS (
    DELETE FROM penstock.lane
    USING item
    WHERE lane.ctid = item.at
        AND NOT item.is_ready
),
moved AS (
    UPDATE penstock.lane SET turn = item.turn, number = item.number, held_until = item.held_until
    FROM item
    WHERE lane.ctid = item.at
        AND item.is_ready
),
used_rates AS (
    INSERT INTO penstock.key_rate (queue, key, arrival_us)
    SELECT $1, item.key, item.arrival_us FROM item WHERE item.arrival_us IS NOT NULL
    ON CONFLICT (queue, key) DO UPDATE SET arrival_us = excluded.arrival_us
)
UPDATE penstock.queue SET
    arrival_us = $2::bigint,
    virtual = coalesce($3::bigint, queue.virtual),
    lanes = coalesce($4::bigint, queue.lanes)
WHERE queue.n = $1
