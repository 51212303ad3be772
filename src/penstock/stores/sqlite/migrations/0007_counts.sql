-- How many jobs a queue has in each state. Triggers keep it, so that whatever changes a job's row changes its count in the same
-- transaction; a file has one writer at a time, and nobody waits for these rows. Jobs that were set aside are in no count.

CREATE TABLE job_count (
    queue INTEGER NOT NULL,
    state TEXT NOT NULL,
    many INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

INSERT INTO job_count (queue, state, many)
SELECT queue.n, state.value, (SELECT count(*) FROM job WHERE job.queue = queue.n AND job.state = state.value)
FROM queue
CROSS JOIN json_each('["blocked", "pending", "delayed", "active", "completed", "failed", "dead", "cancelled"]') AS state;

CREATE TRIGGER queue_counts_begin AFTER INSERT ON queue BEGIN INSERT INTO job_count (queue, state) SELECT NEW.n, state.value FROM json_each('["blocked", "pending", "delayed", "active", "completed", "failed", "dead", "cancelled"]') AS state; END;

CREATE TRIGGER queue_counts_end AFTER DELETE ON queue BEGIN DELETE FROM job_count WHERE queue = OLD.n; END;

CREATE TRIGGER job_counted_in AFTER INSERT ON job BEGIN UPDATE job_count SET many = many + 1 WHERE queue = NEW.queue AND state = NEW.state; END;

CREATE TRIGGER job_counted_out AFTER DELETE ON job BEGIN UPDATE job_count SET many = many - 1 WHERE queue = OLD.queue AND state = OLD.state; END;

CREATE TRIGGER job_counted_on AFTER UPDATE OF state ON job WHEN NEW.state <> OLD.state BEGIN UPDATE job_count SET many = many + CASE state WHEN NEW.state THEN 1 ELSE -1 END WHERE queue = NEW.queue AND state IN (NEW.state, OLD.state); END;
