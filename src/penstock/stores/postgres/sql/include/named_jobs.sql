-- The live jobs that the items name, each found by its id first. The guards of the move follow, and lock_named_jobs after them.
    FROM context
    CROSS JOIN item
    CROSS JOIN LATERAL (
        SELECT job.ctid AS seen FROM penstock.job WHERE job.queue = $1 AND job.id = item.new_id OFFSET 0
    ) AS old
    CROSS JOIN LATERAL (
        SELECT job.*, job.ctid AS at
        FROM penstock.job
        WHERE job.ctid = old.seen
