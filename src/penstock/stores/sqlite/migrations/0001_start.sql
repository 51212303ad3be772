-- Jobs, their order, their events and their idempotency keys.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('clock_offset_ms', 0);

-- seq is the number of the newest event; place the newest place in the order of waiting;
-- at_us the newest time used, so that time never goes back within a queue.
CREATE TABLE queue (
    n INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    place INTEGER NOT NULL DEFAULT 0,
    at_us INTEGER NOT NULL DEFAULT 0,
    trimmed INTEGER NOT NULL DEFAULT 0,
    paused_at INTEGER,
    paused_until INTEGER,
    pause_reason TEXT,
    pause_by TEXT,
    UNIQUE (tenant, name),
    UNIQUE (tenant, number)
);

CREATE TABLE job (
    n INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL REFERENCES queue (n),
    id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    task TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    place INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    drive INTEGER NOT NULL DEFAULT 1,
    delivery INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    enqueued_at INTEGER NOT NULL,
    visible_at INTEGER,
    deadline INTEGER,
    ended_at INTEGER,
    prune_at INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    last_delay_ms INTEGER,
    progress_at INTEGER,
    max_attempts INTEGER NOT NULL,
    retention_ms INTEGER NOT NULL,
    key_held_ms INTEGER NOT NULL,
    token TEXT,
    worker TEXT,
    idempotency_key TEXT,
    key TEXT,
    reason TEXT,
    fingerprint TEXT,
    settled TEXT NOT NULL DEFAULT '',
    options TEXT NOT NULL,
    payload TEXT NOT NULL,
    progress TEXT,
    result TEXT,
    error TEXT
);

CREATE UNIQUE INDEX job_id ON job (queue, id);
CREATE INDEX job_pending ON job (queue, priority DESC, place) WHERE state = 'pending';
CREATE INDEX job_delayed ON job (queue, visible_at, place) WHERE state = 'delayed';
CREATE INDEX job_active ON job (queue, deadline) WHERE state = 'active';
CREATE INDEX job_prunable ON job (queue, prune_at) WHERE state IN ('completed', 'failed', 'cancelled');
CREATE INDEX job_dead ON job (queue, ended_at) WHERE state = 'dead';

-- until is set once the job's record is gone; as long as there is one, its ending decides.
CREATE TABLE idempotency (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    job TEXT NOT NULL,
    digest TEXT NOT NULL,
    until INTEGER,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_until ON idempotency (queue, until) WHERE until IS NOT NULL;

CREATE TABLE event (
    queue INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    move TEXT NOT NULL,
    job TEXT,
    version INTEGER,
    drive INTEGER,
    source TEXT,
    target TEXT,
    task TEXT,
    priority INTEGER,
    key TEXT,
    delivery INTEGER,
    attempt INTEGER,
    fence INTEGER,
    worker TEXT,
    deadline INTEGER,
    visible_at INTEGER,
    reason TEXT,
    error TEXT,
    fingerprint TEXT,
    idempotency_key TEXT,
    max_attempts INTEGER,
    jobs TEXT,
    PRIMARY KEY (queue, seq)
) WITHOUT ROWID;
