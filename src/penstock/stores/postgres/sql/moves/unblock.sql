-- unblock: blocked → pending / delayed / failed; its last awaited child must have ended; failed if one did without success and the policy says so
-- Items: parent, the child's queue, child, the child's state, its result, the verdict of each policy, the error of a parent that fails
-- with this child; each child of a parent once. $10 is the policy of parents that name none, $11 the reason of a parent's failure.
-- An earlier statement of the transaction locked the parents: so this one sees every ending that was written for them.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
        WITH ORDINALITY AS item (new_id, child_queue, child, child_state, child_result, verdicts, new_error, i)
),
awaited AS MATERIALIZED (
    SELECT
        item.*,
        open.child_at,
        item.verdicts::json ->> coalesce(job.more::json ->> 'child_policy', $10) AS verdict
    FROM item
    CROSS JOIN LATERAL (
        SELECT job.more, job.state FROM penstock.job WHERE job.queue = $1 AND job.id = item.new_id OFFSET 0
    ) AS job
    CROSS JOIN LATERAL (
        SELECT child.ctid AS child_at, child.is_done FROM penstock.child
        WHERE child.queue = $1
            AND child.parent = item.new_id
            AND child.child_queue = item.child_queue
            AND child.child = item.child
        OFFSET 0
    ) AS open
    -- These conditions are only here: with statistics of an empty table, the planner would walk an index on them alone.
    WHERE NOT open.is_done
        AND job.state = 'blocked'  -- guard: state
),
counted AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT awaited.*, min(i) FILTER (WHERE verdict = 'fails') OVER (PARTITION BY new_id) AS failed_at
        FROM awaited
    ) AS judged
    WHERE failed_at IS NULL OR i <= failed_at
),
noted AS (
    UPDATE penstock.child SET
        is_done = counted.verdict = 'counts',
        state = counted.child_state,
        result = counted.child_result
    FROM counted
    WHERE child.ctid = counted.child_at
),
ready AS MATERIALIZED (
    SELECT
        mine.new_id AS parent,
        coalesce(mine.failed_at, mine.last_at) AS i,
        mine.failed_at IS NOT NULL AS fails
    FROM (
        SELECT new_id, failed_at, max(i) AS last_at, array_agg(child_at) FILTER (WHERE verdict = 'counts') AS done
        FROM counted
        GROUP BY new_id, failed_at
    ) AS mine
    WHERE mine.failed_at IS NOT NULL
        OR NOT EXISTS (
            SELECT 1 FROM penstock.child
            WHERE child.queue = $1
                AND child.parent = mine.new_id
                AND NOT child.is_done
                AND child.ctid <> ALL (coalesce(mine.done, '{}'))
        )
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        CASE WHEN fails THEN 'failed' WHEN wanted_at > now THEN 'delayed' ELSE 'pending' END AS to_state,
        attempts AS to_attempts,
        CASE WHEN NOT fails AND wanted_at > now THEN wanted_at END AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        CASE WHEN fails THEN $11 ELSE reason END AS to_reason,
        CASE WHEN fails THEN new_error ELSE error END AS to_error,
        fingerprint AS to_fingerprint,
        NULL::text AS to_result,
        settled AS to_settled
    FROM (
        SELECT
            job.*, ready.i, ready.fails, item.new_error, context.now,
            coalesce(
                (job.more::json ->> 'run_at')::bigint,
                context.now + coalesce((job.more::json ->> 'delay_ms')::bigint, 0)
            ) AS wanted_at
        FROM context
        CROSS JOIN ready
        JOIN item ON item.i = ready.i
        CROSS JOIN LATERAL (
            SELECT job.*, job.ctid AS at FROM penstock.job
            WHERE job.queue = $1 AND job.id = ready.parent
            OFFSET 0
        ) AS job
        ORDER BY ready.i
    ) AS ordered
),
-- include: write_jobs, more=after.more, place=after.seq
-- include: write_events, move=unblock, lease=false, faulty=true, reason=NULL, drive=after.drive, deadline=NULL
SELECT
    counted.i IS NOT NULL, CASE WHEN after.i <= item.i THEN after.to_state ELSE nullif(parent.state, 'quarantined') END,
    CASE WHEN after.i = item.i THEN after.key END
FROM item
LEFT JOIN counted ON counted.i = item.i
LEFT JOIN after ON after.id = item.new_id
LEFT JOIN LATERAL (
    SELECT record.state FROM penstock.record WHERE record.queue = $1 AND record.id = item.new_id LIMIT 1
) AS parent ON true
ORDER BY item.i
