-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Moves up to :limit jobs.
-- step: pick
INSERT INTO temp.touched (n, source)
SELECT n, state
FROM job
WHERE queue = :queue
    AND state = 'delayed'  -- guard: state
    AND visible_at <= :now  -- guard: due
ORDER BY visible_at, place
LIMIT :limit

-- step: change
UPDATE job SET state = 'pending', version = version + 1, place = :place + touched.i, visible_at = NULL
FROM temp.touched
WHERE job.n = touched.n
