-- The first place with a pending job in each tier, above a floor, and the transactions that ran meanwhile. $2 are the tiers, $3
-- the floors.
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    array(
        SELECT (
            SELECT job.place FROM penstock.job
            WHERE job.queue = $1 AND job.priority = span.tier AND job.place > span.low AND job.state = 'pending'
            ORDER BY job.place LIMIT 1
        )
        FROM unnest($2::smallint[], $3::bigint[]) WITH ORDINALITY AS span (tier, low, i)
        ORDER BY span.i
    )
