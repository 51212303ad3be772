-- One event for every job touched. :lease, :counted and :faulty say which fields the move's events carry.
INSERT INTO event (
    queue, seq, at, move, job, version, drive, source, target, task, priority, key,
    delivery, attempt, fence, worker, deadline, visible_at, reason, error, fingerprint
)
SELECT
    :queue, :seq + touched.i, :now, :move, job.id, job.version, job.drive, touched.source, job.state,
    job.task, job.priority, job.key,
    CASE WHEN :lease THEN job.delivery END,
    CASE
        WHEN :lease
        THEN job.attempts + 1 - iif(:move = 'bury', json_extract(touched.value, '$[5]'), :counted)
    END,
    CASE WHEN :lease THEN job.fence END,
    CASE WHEN :lease THEN job.worker END,
    CASE :move WHEN 'claim' THEN job.deadline WHEN 'expire' THEN json_extract(touched.value, '$[7]') END,
    CASE WHEN job.state = 'delayed' THEN job.visible_at END,
    CASE
        WHEN :faulty OR job.state = 'cancelled' THEN job.reason
        WHEN :move = 'snooze' THEN json_extract(touched.value, '$[3]')
    END,
    CASE
        WHEN :faulty OR job.state = 'cancelled'
        THEN substr(job.error, 1, min(:error_chars, instr(job.error || char(10), char(10)) - 1))
    END,
    CASE WHEN :faulty OR job.state = 'cancelled' THEN job.fingerprint END
FROM temp.touched
JOIN job ON job.n = touched.n
