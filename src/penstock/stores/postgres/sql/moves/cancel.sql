-- cancel: blocked / pending / delayed / active → cancelled / active; what waits is cancelled; of what runs the request is noted
-- Items: ids. A request that is already noted changes nothing.
-- include: context, free=NOT queue.has_keys
item AS MATERIALIZED (
    SELECT * FROM unnest($3::text[]) WITH ORDINALITY AS item (new_id, i)
    ORDER BY new_id
),
picked AS MATERIALIZED (
    SELECT job.*, item.*
    -- include: named_jobs
            AND job.state IN ('blocked', 'pending', 'delayed', 'active')  -- guard: state
            AND NOT job.cancel_requested
    -- include: lock_named_jobs
),
after AS MATERIALIZED (
    SELECT
        ordered.*,
        nextval((SELECT context.numbers FROM context)) AS seq,
        CASE WHEN state = 'active' THEN 'active' ELSE 'cancelled' END AS to_state,
        attempts AS to_attempts,
        NULL::bigint AS to_visible_at,
        last_delay_ms AS to_last_delay_ms,
        CASE WHEN state = 'active' THEN reason ELSE {cancelled_reason} END AS to_reason,
        error AS to_error,
        fingerprint AS to_fingerprint,
        NULL::text AS to_result,
        settled AS to_settled
    FROM (SELECT * FROM picked ORDER BY i) AS ordered
),
cancel_requests AS (
    UPDATE penstock.job SET
        cancel_requested = true,
        version = after.version + 1,
        stamp = greatest(after.stamp, pg_current_xact_id())
    FROM after
    WHERE job.ctid = after.at
        AND after.to_state = 'active'
),
-- include: write_jobs, more=after.more, place=after.seq
-- include: write_events, move=cancel, lease=false, faulty=true, reason=NULL, drive=after.drive, deadline=NULL
SELECT i, to_state, to_state = 'active', key FROM after
