-- Adds children under the lease of the job $2 with the token $3: $4 are the children that its parents adopt, $5 and $6 the queues
-- and the jobs themselves. The parents' entries come first: they know of the children before these can end.
WITH held AS MATERIALIZED (
    SELECT job.more, job.cancel_requested
    FROM penstock.job
    WHERE job.queue = $1
        AND job.id = $2
        AND job.state = 'active'
        AND job.token = $3
    FOR UPDATE
),
entries AS (
    INSERT INTO penstock.relay (queue, target, what, body)
    SELECT $1, entry.target, entry.what, entry.body
    FROM (
        SELECT
            0 AS step, parent.k, parent.ref ->> 0 AS target, 'adopt' AS what,
            json_build_object('parent', parent.ref ->> 1, 'children', $4::json)::text AS body
        FROM held
        CROSS JOIN LATERAL json_array_elements(held.more::json -> 'parents') WITH ORDINALITY AS parent (ref, k)
        UNION ALL
        SELECT 1, job.k, job.target, 'spawn', job.body
        FROM held
        CROSS JOIN unnest($5::text[], $6::text[]) WITH ORDINALITY AS job (target, body, k)
        ORDER BY step, k
    ) AS entry
)
SELECT held.cancel_requested FROM held
