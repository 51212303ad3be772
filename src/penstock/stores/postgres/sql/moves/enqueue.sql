-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Items: id, nonce, payload; then task, is it blocked, priority, delay in ms, run_at, idempotency key, digest, key, options,
-- max_attempts, retention in ms, time in ms that the key is held after the record went, more. What all items have in
-- common is not in its array, which is empty then, but among the values from $19 on. An id is in a call once.
-- Answers with the state of all items, or where they are not all made, or not alike, with the ids and states of those made.
-- The transaction's number is taken before the first place: whoever waits for all transactions up to a number has seen
-- all places taken before it.
-- include: given, free=queue.is_plain
-- Ids grow with time: between those of one call there is nearly always no other, and none has to be looked for.
near AS MATERIALIZED (
    SELECT
        EXISTS (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.id BETWEEN span.low AND span.high) AS any_live,
        EXISTS (SELECT 1 FROM penstock.ended WHERE ended.queue = $1 AND ended.id BETWEEN span.low AND span.high) AS any_ended
    FROM (SELECT min(id COLLATE "C") AS low, max(id COLLATE "C") AS high FROM unnest($3::text[]) AS item (id)) AS span
),
free AS MATERIALIZED (
    SELECT item.*, given.now, pg_current_xact_id() AS stamp,
        CASE WHEN NOT item.is_blocked AND coalesce(item.run_at, given.now + item.delay_ms) > given.now
            THEN coalesce(item.run_at, given.now + item.delay_ms)
        END AS visible_at
    FROM given
    CROSS JOIN near
    CROSS JOIN unnest(
        $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::smallint[], $9::bigint[], $10::bigint[],
        $11::text[], $12::text[], $13::text[], $14::text[], $15::integer[], $16::bigint[], $17::bigint[], $18::text[]
    ) WITH ORDINALITY AS own (
        id, nonce, payload, task, is_blocked, priority, delay_ms, run_at, idempotency_key, digest, key, options,
        max_attempts, retention_ms, key_held_ms, more, i
    )
    CROSS JOIN LATERAL (
        SELECT
            own.id, own.nonce, own.payload, own.i,
            coalesce(own.task, $19::text) AS task,
            coalesce(own.is_blocked, $20::boolean) AS is_blocked,
            coalesce(own.priority, $21::smallint) AS priority,
            coalesce(own.delay_ms, $22::bigint) AS delay_ms,
            coalesce(own.run_at, $23::bigint) AS run_at,
            coalesce(own.idempotency_key, $24::text) AS idempotency_key,
            coalesce(own.digest, $25::text) AS digest,
            coalesce(own.key, $26::text) AS key,
            coalesce(own.options, $27::text) AS options,
            coalesce(own.max_attempts, $28::integer) AS max_attempts,
            coalesce(own.retention_ms, $29::bigint) AS retention_ms,
            coalesce(own.key_held_ms, $30::bigint) AS key_held_ms,
            coalesce(own.more, $31::text) AS more
    ) AS item
    WHERE (
        NOT near.any_live
        OR (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.id = item.id LIMIT 1) IS NULL
    ) AND (
        NOT near.any_ended
        OR (SELECT 1 FROM penstock.ended WHERE ended.queue = $1 AND ended.id = item.id LIMIT 1) IS NULL
    )
),
taken AS (
    INSERT INTO penstock.idempotency (queue, key, job, digest)
    SELECT DISTINCT ON (free.idempotency_key) $1, free.idempotency_key, free.id, free.digest
    FROM free
    WHERE free.idempotency_key IS NOT NULL
    ORDER BY free.idempotency_key, free.i
    ON CONFLICT (queue, key) DO UPDATE SET job = excluded.job, digest = excluded.digest, until = NULL
    WHERE idempotency.until <= (SELECT given.now FROM given)
    RETURNING idempotency.key, idempotency.job
),
made AS (
    INSERT INTO penstock.job (
        queue, id, nonce, task, state, priority, place, stamp, enqueued_at, visible_at, idempotency_key, key, options,
        max_attempts, retention_ms, key_held_ms, payload, more
    )
    SELECT
        $1, free.id, free.nonce, free.task,
        CASE WHEN free.is_blocked THEN 'blocked' WHEN free.visible_at IS NULL THEN 'pending' ELSE 'delayed' END,
        free.priority, nextval((SELECT given.numbers FROM given)), free.stamp, free.now, free.visible_at, free.idempotency_key,
        free.key, free.options, free.max_attempts, free.retention_ms, free.key_held_ms, free.payload, free.more
    FROM free
    WHERE free.idempotency_key IS NULL OR free.id IN (SELECT taken.job FROM taken)
    ORDER BY free.i
    ON CONFLICT (queue, id) DO NOTHING
    RETURNING
        job.id, job.state, job.stamp, job.place, job.enqueued_at, job.task, job.priority, job.key, job.visible_at,
        job.idempotency_key, job.max_attempts, job.more
),
twice AS MATERIALIZED (
    SELECT penstock.take_back(
        $1, array_agg(made.id), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ) AS ids
    FROM made
),
kept AS NOT MATERIALIZED (
    SELECT made.* FROM made CROSS JOIN twice WHERE made.id <> ALL (twice.ids)
),
let_go AS MATERIALIZED (
    SELECT CASE WHEN count(*) > 0 THEN penstock.let_go($1, array_agg(taken.key), array_agg(taken.job)) END AS many
    FROM taken
    WHERE taken.job NOT IN (SELECT kept.id FROM kept)
),
told AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, target, task, priority, key, visible_at, idempotency_key,
        max_attempts, parent, schedule, instant
    )
    SELECT
        $1, kept.stamp, kept.place, kept.enqueued_at, 'enqueue', kept.id, 1, 1, kept.state, kept.task, kept.priority,
        kept.key, kept.visible_at, kept.idempotency_key, kept.max_attempts,
        (kept.more::json #>> '{parents,0,0}') || '/' || (kept.more::json #>> '{parents,0,1}'),
        kept.more::json ->> 'schedule', (kept.more::json ->> 'instant')::bigint
    FROM kept
)
SELECT whole.state, CASE WHEN whole.state IS NULL THEN whole.ids END, CASE WHEN whole.state IS NULL THEN whole.states END
FROM (
    SELECT
        CASE WHEN count(*) = cardinality($3::text[]) AND min(kept.state) = max(kept.state) THEN min(kept.state) END AS state,
        array_agg(kept.id) AS ids,
        array_agg(kept.state) AS states
    FROM kept
) AS whole
CROSS JOIN let_go
