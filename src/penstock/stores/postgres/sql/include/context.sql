-- The store's time, and the sequence of the queue's event numbers, for the statement that includes this file. A statement that
-- needs a lock on the queue's row, and runs without it, gets no row here and changes nothing: {free} is the condition under which
-- no lock is needed. The line marked `unlocked` is left out of the statements that are prepared for calls which hold the lock
-- (`sources.statements`). The time is that of penstock.now_us, written out: calling that function takes as long as leasing
-- ten jobs.
WITH context AS MATERIALIZED (
    SELECT clock.now_us, clock.now_us / 1000 AS now, queue.numbers, queue.has_keys
    FROM penstock.queue
    JOIN penstock.meta ON meta.name = 'clock_offset_ms'
    CROSS JOIN LATERAL (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + meta.value * 1000 AS us
    ) AS host
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN $2::bigint < 0 THEN -$2::bigint
            WHEN $2::bigint - host.us BETWEEN 1 AND {clock_step_us} THEN $2::bigint
            ELSE host.us
        END AS now_us
    ) AS clock
    WHERE queue.n = $1
        AND {free}  -- unlocked
),
