-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Items: id, nonce, payload; then task, is it blocked, priority, delay in ms, run_at, idempotency key, digest, key, options,
-- max_attempts, retention in ms, time in ms that the key is held after the record was removed, more. A value that all items share
-- is not in its array, which is empty then, but among the values from $19 on. No id is in a call twice.
-- Returns the state of all items, or, unless all were made and all alike, the ids and states of those that were made.
-- The transaction takes its number before the first place: so a reader that waited for all transactions up to a number has seen
-- all places that were taken before it.
-- include: context, free=queue.is_plain
-- Ids grow with time: between the lowest and the highest of a call there is nearly always no other job, and no id has to be looked up.
id_range AS MATERIALIZED (
    SELECT
        EXISTS (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.id BETWEEN span.low AND span.high) AS any_live,
        EXISTS (SELECT 1 FROM penstock.ended WHERE ended.queue = $1 AND ended.id BETWEEN span.low AND span.high) AS any_ended
    FROM (SELECT min(id COLLATE "C") AS low, max(id COLLATE "C") AS high FROM unnest($3::text[]) AS item (id)) AS span
),
admitted AS MATERIALIZED (
    SELECT item.*, context.now, pg_current_xact_id() AS stamp,
        CASE WHEN NOT item.is_blocked AND coalesce(item.run_at, context.now + item.delay_ms) > context.now
            THEN coalesce(item.run_at, context.now + item.delay_ms)
        END AS visible_at
    FROM context
    CROSS JOIN id_range
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
        NOT id_range.any_live
        OR (SELECT 1 FROM penstock.job WHERE job.queue = $1 AND job.id = item.id LIMIT 1) IS NULL
    ) AND (
        NOT id_range.any_ended
        OR (SELECT 1 FROM penstock.ended WHERE ended.queue = $1 AND ended.id = item.id LIMIT 1) IS NULL
    )
),
taken_keys AS (
    INSERT INTO penstock.idempotency (queue, key, job, digest)
    SELECT DISTINCT ON (admitted.idempotency_key) $1, admitted.idempotency_key, admitted.id, admitted.digest
    FROM admitted
    WHERE admitted.idempotency_key IS NOT NULL
    ORDER BY admitted.idempotency_key, admitted.i
    ON CONFLICT (queue, key) DO UPDATE SET job = excluded.job, digest = excluded.digest, until = NULL
    WHERE idempotency.until <= (SELECT context.now FROM context)
    RETURNING idempotency.key, idempotency.job
),
inserted AS (
    INSERT INTO penstock.job (
        queue, id, nonce, task, state, priority, place, stamp, enqueued_at, visible_at, idempotency_key, key, options,
        max_attempts, retention_ms, key_held_ms, payload, more
    )
    SELECT
        $1, admitted.id, admitted.nonce, admitted.task,
        CASE WHEN admitted.is_blocked THEN 'blocked' WHEN admitted.visible_at IS NULL THEN 'pending' ELSE 'delayed' END,
        admitted.priority, nextval((SELECT context.numbers FROM context)), admitted.stamp, admitted.now, admitted.visible_at,
        admitted.idempotency_key, admitted.key, admitted.options, admitted.max_attempts, admitted.retention_ms,
        admitted.key_held_ms, admitted.payload, admitted.more
    FROM admitted
    WHERE admitted.idempotency_key IS NULL OR admitted.id IN (SELECT taken_keys.job FROM taken_keys)
    ORDER BY admitted.i
    ON CONFLICT (queue, id) DO NOTHING
    RETURNING
        job.id, job.state, job.stamp, job.place, job.enqueued_at, job.task, job.priority, job.key, job.visible_at,
        job.idempotency_key, job.max_attempts, job.more
),
duplicates AS MATERIALIZED (
    SELECT penstock.take_back(
        $1, array_agg(inserted.id), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ) AS ids
    FROM inserted
),
enqueued AS NOT MATERIALIZED (
    SELECT inserted.* FROM inserted CROSS JOIN duplicates WHERE inserted.id <> ALL (duplicates.ids)
),
released_keys AS MATERIALIZED (
    SELECT CASE WHEN count(*) > 0 THEN penstock.let_go($1, array_agg(taken_keys.key), array_agg(taken_keys.job)) END AS many
    FROM taken_keys
    WHERE taken_keys.job NOT IN (SELECT enqueued.id FROM enqueued)
),
written_events AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, job, version, drive, target, task, priority, key, visible_at, idempotency_key,
        max_attempts, parent, schedule, instant
    )
    SELECT
        $1, enqueued.stamp, enqueued.place, enqueued.enqueued_at, 'enqueue', enqueued.id, 1, 1, enqueued.state,
        enqueued.task, enqueued.priority, enqueued.key, enqueued.visible_at, enqueued.idempotency_key, enqueued.max_attempts,
        (enqueued.more::json #>> '{parents,0,0}') || '/' || (enqueued.more::json #>> '{parents,0,1}'),
        enqueued.more::json ->> 'schedule', (enqueued.more::json ->> 'instant')::bigint
    FROM enqueued
)
SELECT summary.state, CASE WHEN summary.state IS NULL THEN summary.ids END, CASE WHEN summary.state IS NULL THEN summary.states END
FROM (
    SELECT
        CASE WHEN count(*) = cardinality($3::text[]) AND min(enqueued.state) = max(enqueued.state)
            THEN min(enqueued.state)
        END AS state,
        array_agg(enqueued.id) AS ids,
        array_agg(enqueued.state) AS states
    FROM enqueued
) AS summary
CROSS JOIN released_keys
