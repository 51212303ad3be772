-- Notes which jobs hold their kinds from now on. Items: kind, job, time until which the kind counts once the job's record is
-- removed; no kind twice. $2 is the time in ms.
INSERT INTO penstock.kind (queue, key, job, since, until)
SELECT $1, item.key, item.job, $2::bigint, item.until
FROM unnest($3::text[], $4::text[], $5::bigint[]) AS item (key, job, until)
ON CONFLICT (queue, key) DO UPDATE SET
    job = excluded.job, since = excluded.since, until = excluded.until, is_left = false
