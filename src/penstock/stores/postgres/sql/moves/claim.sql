-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- $3 is how many at most, $4 the lease in ms, $5 the worker. $6 to $8 are spans of the line to look into, in order: tier,
-- after which place, up to which; they spare walking over entries of jobs that are long gone. $9 and $10 do so for
-- leases and delayed jobs: nothing lies before them. With due jobs nothing is claimed unless $11: they are promoted first.
-- Where keys take turns there are no spans, and $12 names the key of each job, in order; then the queue's row is held. $13 is the
-- floor of fences. A lease that ends later than one of this claim may is looked for here, any other by upkeep.
-- include: given, free=queue.is_plain
gate AS MATERIALIZED (
    SELECT
        given.now,
        given.now_us,
        replace(gen_random_uuid()::text, '-', '') AS secret,
        queue.paused_at IS NULL OR queue.paused_until <= given.now AS is_open,
        queue.paused_until,
        (
            SELECT job.visible_at FROM penstock.job
            WHERE job.queue = $1 AND job.visible_at >= $10::bigint
            ORDER BY job.visible_at LIMIT 1
        ) AS due_at,
        EXISTS (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.deadline BETWEEN $9::bigint AND given.now
        ) OR EXISTS (
            SELECT 1 FROM penstock.job
            WHERE job.queue = $1 AND job.deadline > given.now + $4::bigint + 60000
        ) AS is_late,
        CASE WHEN $13::bigint <= given.now_us + 3600000000 THEN $13::bigint ELSE 0 END AS floor_us
    FROM given
    JOIN penstock.queue ON queue.n = $1
),
picked AS MATERIALIZED (
    SELECT job.at
    FROM gate
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
    WHERE ($11::boolean OR gate.due_at IS NULL OR gate.due_at > gate.now)
        AND gate.is_open  -- guard: open
    LIMIT $3::bigint
),
turned AS MATERIALIZED (
    SELECT job.at, served.turns[job.nth] AS i
    FROM gate
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
        AND gate.is_open  -- guard: open
),
leased AS (
    UPDATE penstock.job SET
        state = 'active',
        version = job.version + 1,
        stamp = greatest(job.stamp, pg_current_xact_id()),
        delivery = job.delivery + 1,
        -- One secret for all of the claim, and what tells its jobs apart: a secret of its own costs as much as the rest.
        token = left(gate.secret, 16) || lpad(to_hex(job.place), 16, '0'),
        fence = least(greatest(job.fence + 1, gate.now_us, gate.floor_us), 9007199254740991),
        deadline = gate.now + $4::bigint,
        lease_ms = $4::bigint,
        worker = $5
    FROM gate
    CROSS JOIN (SELECT picked.at, NULL::bigint AS i FROM picked UNION ALL SELECT turned.at, turned.i FROM turned) AS taken
    WHERE job.ctid = taken.at
    RETURNING
        job.id, job.task, job.payload, job.priority, job.options, job.enqueued_at, job.drive, job.delivery, job.attempts,
        job.token, job.fence, job.deadline, job.key, job.last_delay_ms, job.cancel_requested, job.more, job.place,
        job.stamp, job.version, job.worker, taken.i
),
after AS MATERIALIZED (
    SELECT ordered.*, nextval((SELECT given.numbers FROM given)) AS seq
    FROM (SELECT * FROM leased ORDER BY i, priority DESC, place) AS ordered
),
told AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, source, target, task, priority, key,
        delivery, attempt, fence, worker, deadline
    )
    SELECT
        $1, after.stamp, after.seq, given.now, 'claim', after.id, after.version, after.drive, 'pending', 'active',
        after.task, after.priority, after.key, after.delivery, after.attempts + 1, after.fence, after.worker,
        after.deadline
    FROM given
    CROSS JOIN after
)
SELECT
    gate.now_us, gate.due_at, gate.is_late,
    CASE WHEN gate.paused_until > gate.now THEN gate.paused_until END,
    after.id, after.task, after.payload, after.priority, after.options, after.enqueued_at, after.drive, after.delivery,
    after.attempts, after.token, after.fence, after.deadline, after.key, after.last_delay_ms, after.cancel_requested,
    after.more, after.place
FROM gate
LEFT JOIN after ON true
