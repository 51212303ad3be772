-- The time of the statement. $2 is the newest time that this process has seen.
WITH given AS MATERIALIZED (
    SELECT clock.now_us, clock.now_us / 1000 AS now
    FROM penstock.now_us($2::bigint) AS clock (now_us)
),
