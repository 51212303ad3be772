-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- $3 is how many jobs are wanted at most, $4 the lease in ms, $5 the worker. $6 to $8 are the ranges of places to look into, in
-- order: tier, after which place, up to which place; index entries of jobs that are long gone lie outside of them. $9 and $10 do the
-- same for leases and delayed jobs: none is before these times. Where jobs are due nothing is claimed unless $11 is true: the caller
-- promotes them first. Where keys take turns there are no ranges, $12 names the key of each job, in order, and the transaction holds
-- the queue's row. $13 is the floor of fences. A lease that ends later than any lease of this claim is looked for here, all other
-- leases that the clock was set back from by upkeep.
-- include: context, free=queue.is_plain
queue_state AS MATERIALIZED (
    SELECT
        context.now,
        context.now_us,
        replace(gen_random_uuid()::text, '-', '') AS secret,
        queue.paused_at IS NULL OR queue.paused_until <= context.now AS is_open,
        queue.paused_until,
        (
            SELECT job.visible_at FROM penstock.job
            WHERE job.queue = $1 AND job.visible_at >= $10::bigint
            ORDER BY job.visible_at LIMIT 1
        ) AS due_at,
        EXISTS (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.deadline BETWEEN $9::bigint AND context.now
        ) OR EXISTS (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.deadline > context.now + $4::bigint + {clock_step_ms}
        ) AS is_late,
        CASE WHEN $13::bigint <= context.now_us + {fence_floor_us} THEN $13::bigint ELSE 0 END AS floor_us
    FROM context
    JOIN penstock.queue ON queue.n = $1
),
picked AS MATERIALIZED (
    SELECT job.at
    FROM queue_state
    CROSS JOIN unnest($6::smallint[], $7::bigint[], $8::bigint[]) AS span (tier, low, high)
    CROSS JOIN LATERAL (
        SELECT job.ctid AS at
        FROM penstock.job
        WHERE job.queue = $1
            AND job.priority = span.tier
            AND job.place > span.low
            AND job.place <= span.high
            AND job.state = 'pending'  -- guard: state
        ORDER BY job.place
        LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ) AS job
    WHERE ($11::boolean OR queue_state.due_at IS NULL OR queue_state.due_at > queue_state.now)
        AND queue_state.is_open  -- guard: open
    LIMIT $3::bigint
),
picked_by_key AS MATERIALIZED (
    SELECT job.at, served.turns[job.nth] AS i
    FROM queue_state
    CROSS JOIN (
        SELECT served.key, count(*) AS many, array_agg(served.i ORDER BY served.i) AS turns
        FROM unnest($12::text[]) WITH ORDINALITY AS served (key, i)
        GROUP BY served.key
    ) AS served
    CROSS JOIN LATERAL (
        SELECT waiting.at, row_number() OVER (ORDER BY waiting.place) AS nth
        FROM (
            SELECT job.ctid AS at, job.place
            FROM penstock.job
            WHERE job.queue = $1
                AND job.key = served.key
                AND job.state = 'pending'  -- guard: state
            ORDER BY job.place
            LIMIT served.many
            FOR UPDATE
        ) AS waiting
    ) AS job
    WHERE true
        AND queue_state.is_open  -- guard: open
),
leased AS (
    UPDATE penstock.job SET
        state = 'active',
        version = job.version + 1,
        stamp = greatest(job.stamp, pg_current_xact_id()),
        delivery = job.delivery + 1,
        -- All tokens of a claim share a secret and differ by the job's place: a secret for each job would take as long as the rest.
        token = left(queue_state.secret, 16) || lpad(to_hex(job.place), 16, '0'),
        fence = least(greatest(job.fence + 1, queue_state.now_us, queue_state.floor_us), {highest_fence}),
        deadline = queue_state.now + $4::bigint,
        lease_ms = $4::bigint,
        worker = $5
    FROM queue_state
    CROSS JOIN (SELECT picked.at, NULL::bigint AS i FROM picked UNION ALL SELECT picked_by_key.at, picked_by_key.i FROM picked_by_key) AS taken
    WHERE job.ctid = taken.at
    RETURNING
        job.id, job.task, job.payload, job.priority, job.options, job.enqueued_at, job.drive, job.delivery, job.attempts,
        job.token, job.fence, job.deadline, job.key, job.last_delay_ms, job.cancel_requested, job.more, job.place,
        job.stamp, job.version, job.worker, taken.i
),
after AS MATERIALIZED (
    SELECT ordered.*, nextval((SELECT context.numbers FROM context)) AS seq
    FROM (SELECT * FROM leased ORDER BY i, priority DESC, place) AS ordered
),
written_events AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, source, target, task, priority, key,
        delivery, attempt, fence, worker, deadline
    )
    SELECT
        $1, after.stamp, after.seq, context.now, 'claim', after.id, after.version, after.drive, 'pending', 'active',
        after.task, after.priority, after.key, after.delivery, after.attempts + 1, after.fence, after.worker,
        after.deadline
    FROM context
    CROSS JOIN after
)
SELECT
    queue_state.now_us, queue_state.due_at, queue_state.is_late,
    CASE WHEN queue_state.paused_until > queue_state.now THEN queue_state.paused_until END,
    after.id, after.task, after.payload, after.priority, after.options, after.enqueued_at, after.drive, after.delivery,
    after.attempts, after.token, after.fence, after.deadline, after.key, after.last_delay_ms, after.cancel_requested,
    after.more, after.place
FROM queue_state
LEFT JOIN after ON true
