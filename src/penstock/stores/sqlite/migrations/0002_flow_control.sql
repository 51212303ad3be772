-- Limits, keys that take turns, unique jobs, flows and schedules.

ALTER TABLE queue ADD COLUMN declaration TEXT;
ALTER TABLE queue ADD COLUMN arrival_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN virtual INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN lanes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN relays INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN has_flows INTEGER NOT NULL DEFAULT 0;

-- What few jobs have, as JSON: parents, child_policy, delay_ms, run_at, unique, schedule, instant.
ALTER TABLE job ADD COLUMN more TEXT;

ALTER TABLE event ADD COLUMN parent TEXT;
ALTER TABLE event ADD COLUMN schedule TEXT;
ALTER TABLE event ADD COLUMN instant INTEGER;

CREATE INDEX job_blocked ON job (queue) WHERE state = 'blocked';
CREATE INDEX job_key_pending ON job (queue, key, place) WHERE state = 'pending' AND key IS NOT NULL;
CREATE INDEX job_key_active ON job (queue, key) WHERE state = 'active' AND key IS NOT NULL;

-- A key has a lane exactly while it has waiting jobs and a free slot; held_until is set while its rate holds it back.
CREATE TABLE lane (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    turn INTEGER NOT NULL,
    number INTEGER NOT NULL,
    held_until INTEGER,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE INDEX lane_turn ON lane (queue, turn, number) WHERE held_until IS NULL;
CREATE INDEX lane_held ON lane (queue, held_until, number) WHERE held_until IS NOT NULL;

CREATE TABLE key_rule (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    max_active INTEGER,
    weight INTEGER NOT NULL,
    stride INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- When the next claim of a key would be on time by its rate; forgotten once that is over.
CREATE TABLE key_rate (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    arrival_us INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- The job that is one of its kind.
CREATE TABLE kind (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    job TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE TABLE child (
    queue INTEGER NOT NULL,
    parent TEXT NOT NULL,
    child_queue TEXT NOT NULL,
    child TEXT NOT NULL,
    i INTEGER NOT NULL,
    is_done INTEGER NOT NULL DEFAULT 0,
    state TEXT,
    result TEXT,
    PRIMARY KEY (queue, parent, child_queue, child)
) WITHOUT ROWID;

CREATE TABLE relay (
    queue INTEGER NOT NULL,
    number INTEGER NOT NULL,
    target TEXT NOT NULL,
    what TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (queue, number)
) WITHOUT ROWID;

CREATE TABLE schedule (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    next_at INTEGER,
    last_at INTEGER,
    paused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (queue, next_at) WHERE next_at IS NOT NULL AND NOT paused;
