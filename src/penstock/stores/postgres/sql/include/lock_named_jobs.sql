-- Locks the named jobs that pass the guards; a job that was changed while this statement waited for its lock is left out.
        FOR UPDATE
    ) AS job
    WHERE job.at = old.seen
