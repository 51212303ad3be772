-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Items: ids. One event for all of them; with its last version if it is only one.
-- include: given
item AS MATERIALIZED (
    SELECT DISTINCT ON (new_id) new_id, i
    FROM unnest($3::text[]) WITH ORDINALITY AS item (new_id, i)
    ORDER BY new_id, i
),
waiting AS MATERIALIZED (
    SELECT job.id
    FROM item
    JOIN penstock.job ON job.queue = $1 AND job.id = item.new_id
    WHERE true
        AND job.state <> 'active'  -- guard: state
    ORDER BY job.id
    FOR UPDATE OF job
),
gone_live AS (
    DELETE FROM penstock.job
    USING waiting
    WHERE job.queue = $1
        AND job.id = waiting.id
    RETURNING job.*, NULL::bigint AS ended_at, NULL::bigint AS prune_at, NULL::text AS result
),
gone_ended AS (
    DELETE FROM penstock.ended
    USING item
    WHERE ended.queue = $1
        AND ended.id = item.new_id
    RETURNING ended.*
),
after AS MATERIALIZED (
    SELECT gone.*, item.i, count(*) OVER () AS many
    FROM (SELECT * FROM gone_live UNION ALL SELECT * FROM gone_ended) AS gone
    JOIN item ON item.new_id = gone.id
),
-- include: removed
told AS (
    INSERT INTO penstock.event (
        queue, stamp, seq, at, move, reason, job, version, drive, source, task, priority, key,
        visible_at, error, fingerprint, jobs
    )
    SELECT
        $1, greatest(max(after.stamp), pg_current_xact_id()), nextval((SELECT given.numbers FROM given)), max(given.now), 'delete',
        'DELETED',
        CASE WHEN count(*) = 1 THEN max(after.id) END,
        CASE WHEN count(*) = 1 THEN max(after.version) + 1 END,
        CASE WHEN count(*) = 1 THEN max(after.drive) END,
        CASE WHEN count(*) = 1 THEN max(after.state) END,
        CASE WHEN count(*) = 1 THEN max(after.task) END,
        CASE WHEN count(*) = 1 THEN max(after.priority) END,
        CASE WHEN count(*) = 1 THEN max(after.key) END,
        CASE WHEN count(*) = 1 THEN max(after.visible_at) END,
        CASE WHEN count(*) = 1 AND max(after.state) = 'cancelled' THEN left(split_part(max(after.error), E'\n', 1), 500) END,
        CASE WHEN count(*) = 1 AND max(after.state) = 'cancelled' THEN max(after.fingerprint) END,
        CASE WHEN count(*) > 1 THEN array_agg(after.id ORDER BY after.i) END
    FROM given
    CROSS JOIN after
    HAVING count(*) > 0
)
SELECT i, state, false FROM after
