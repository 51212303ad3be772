-- A lease keeps its duration: one whose deadline lies further ahead has ended, because the clock was set back. A queue keeps how
-- its clock was last set back: at which new time, and by how much.
ALTER TABLE job ADD COLUMN lease_ms INTEGER;

ALTER TABLE queue ADD COLUMN step_at INTEGER;

ALTER TABLE queue ADD COLUMN step_back_ms INTEGER;
