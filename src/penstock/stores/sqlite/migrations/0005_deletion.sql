-- Queues can be deleted. Their numbers are not given again: `numbering` keeps the highest one that a deleted queue had.
-- `made` tells a queue from an earlier one of the same name; it is empty for queues from before.

ALTER TABLE queue ADD COLUMN made TEXT NOT NULL DEFAULT '';

CREATE TABLE numbering (
    tenant TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) WITHOUT ROWID;

-- Rows of deleted queues whose events and keys are still to be removed, in batches.
CREATE TABLE deleted_queue (
    n INTEGER PRIMARY KEY
);

-- The newest time that a deleted queue used, so that time does not go back in a queue that is made after it.
INSERT INTO meta (name, value) VALUES ('deleted_at_us', 0);
