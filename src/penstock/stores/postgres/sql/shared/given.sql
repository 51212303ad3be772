-- The time of the statement, and where the queue's numbers come from. $2 is the newest time that this process has seen.
WITH given AS MATERIALIZED (
    SELECT clock.now_us, clock.now_us / 1000 AS now, queue.numbers
    FROM penstock.queue
    CROSS JOIN penstock.now_us($2::bigint) AS clock (now_us)
    WHERE queue.n = $1
),
