-- Everything a store keeps. Live jobs, ended jobs, dead letters and events have tables of their own.

CREATE TABLE penstock.meta (
    name text PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO penstock.meta (name, value) VALUES ('clock_offset_ms', 0);

-- numbers is the sequence that gives the numbers of the queue's events, and with them the order of arrival: never waited
-- for, and taken in the order of time, so that sessions must not cache it.
-- is_plain is false once claims or arrivals have to look at the whole queue: those lock this row. With has_keys, keys take
-- turns, and every move locks it: whether a key could be served depends on all its jobs.
-- trimmed_stamp and trimmed_seq are the place in the event log up to which it was forgotten, trimmed is the highest number
-- that was.
CREATE TABLE penstock.queue (
    n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    name text NOT NULL,
    number integer NOT NULL,
    numbers regclass,
    is_plain boolean NOT NULL DEFAULT true,
    has_keys boolean NOT NULL DEFAULT false,
    declaration text,
    paused_at bigint,
    paused_until bigint,
    pause_reason text,
    pause_by text,
    arrival_us bigint NOT NULL DEFAULT 0,
    virtual bigint NOT NULL DEFAULT 0,
    lanes bigint NOT NULL DEFAULT 0,
    trimmed_stamp xid8 NOT NULL DEFAULT '0',
    trimmed_seq bigint NOT NULL DEFAULT 0,
    trimmed bigint NOT NULL DEFAULT 0,
    UNIQUE (tenant, name),
    UNIQUE (tenant, number)
) WITH (fillfactor = 50);

-- Jobs that have not ended. stamp is that of the job's newest event; see event.
-- place is the number of the event that put it there, negated for the front.
-- more is JSON of what few jobs have: parents, child_policy, delay_ms, run_at, unique, schedule, instant.
CREATE TABLE penstock.job (
    queue integer NOT NULL,
    priority smallint NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    version integer NOT NULL DEFAULT 1,
    drive integer NOT NULL DEFAULT 1,
    delivery integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    place bigint NOT NULL,
    stamp xid8 NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    enqueued_at bigint NOT NULL,
    retention_ms bigint NOT NULL,
    key_held_ms bigint NOT NULL,
    visible_at bigint,
    deadline bigint,
    last_delay_ms bigint,
    progress_at bigint,
    state text NOT NULL,
    id text NOT NULL,
    nonce text NOT NULL,
    task text NOT NULL,
    settled text NOT NULL DEFAULT '',
    options text NOT NULL,
    token text,
    worker text,
    idempotency_key text,
    key text,
    reason text,
    fingerprint text,
    error text,
    progress text,
    more text,
    payload text NOT NULL,
    PRIMARY KEY (queue, id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.5,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX job_pending ON penstock.job (queue, priority, place) WHERE state = 'pending';
-- Of delayed and of active jobs. Said otherwise than by their state, so that moves that name a job by its id and ask for
-- that state never walk these instead.
CREATE INDEX job_delayed ON penstock.job (queue, visible_at, place) WHERE visible_at IS NOT NULL;
CREATE INDEX job_active ON penstock.job (queue, deadline) WHERE deadline IS NOT NULL;
CREATE INDEX job_blocked ON penstock.job (queue) WHERE state = 'blocked';
CREATE INDEX job_key_pending ON penstock.job (queue, key, place) WHERE state = 'pending' AND key IS NOT NULL;
CREATE INDEX job_key_active ON penstock.job (queue, key) WHERE state = 'active' AND key IS NOT NULL;

-- Jobs that have ended. Dead letters lie apart: they are never pruned, and looked at more than the others.
CREATE TABLE penstock.ended (
    LIKE penstock.job INCLUDING DEFAULTS,
    ended_at bigint NOT NULL,
    prune_at bigint NOT NULL,
    result text,
    PRIMARY KEY (queue, id, state)
) PARTITION BY LIST (state);

CREATE TABLE penstock.done PARTITION OF penstock.ended FOR VALUES IN ('completed', 'failed', 'cancelled') WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE penstock.dead PARTITION OF penstock.ended FOR VALUES IN ('dead');

-- Conditioned on what is always so, and is asked only by who wants that order: with statistics from an empty moment a lookup
-- by id would walk them.
CREATE INDEX done_prune ON penstock.done (queue, prune_at) WHERE prune_at >= 0;
CREATE INDEX dead_ended ON penstock.dead (queue, ended_at) WHERE ended_at >= 0;

-- Every job, wherever it lies.
CREATE VIEW penstock.record AS
SELECT job.*, NULL::bigint AS ended_at, NULL::bigint AS prune_at, NULL::text AS result FROM penstock.job
UNION ALL
SELECT * FROM penstock.ended;

-- until is set once the job's record is gone; as long as there is one, its ending decides.
CREATE TABLE penstock.idempotency (
    queue integer NOT NULL,
    key text NOT NULL,
    job text NOT NULL,
    digest text NOT NULL,
    until bigint,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 90);

CREATE INDEX idempotency_until ON penstock.idempotency (queue, until) WHERE until IS NOT NULL;

-- stamp is the number of the transaction that wrote the event, or that of the job's event before it if that is
-- higher. So it never falls within a job, and all events with a stamp below every running transaction are final:
-- (stamp, seq) is an order in which nothing is added behind a reader.
CREATE TABLE penstock.event (
    queue integer NOT NULL,
    stamp xid8 NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    version integer,
    drive integer,
    delivery integer,
    attempt integer,
    max_attempts integer,
    priority smallint,
    fence bigint,
    deadline bigint,
    visible_at bigint,
    instant bigint,
    move text NOT NULL,
    job text,
    source text,
    target text,
    task text,
    key text,
    worker text,
    reason text,
    error text,
    fingerprint text,
    idempotency_key text,
    parent text,
    schedule text,
    jobs text[],
    PRIMARY KEY (queue, stamp, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- Readers of the event log that nothing may be trimmed ahead of.
CREATE TABLE penstock.reader (
    queue integer NOT NULL,
    name text NOT NULL,
    cursor text NOT NULL,
    seq bigint NOT NULL,
    kept_until bigint NOT NULL,
    PRIMARY KEY (queue, name)
) WITH (fillfactor = 50);

-- A key has a lane exactly while it has waiting jobs and a free slot; held_until is set while its rate holds it back.
CREATE TABLE penstock.lane (
    queue integer NOT NULL,
    key text NOT NULL,
    turn bigint NOT NULL,
    number bigint NOT NULL,
    held_until bigint,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX lane_turn ON penstock.lane (queue, turn, number) WHERE held_until IS NULL;
CREATE INDEX lane_held ON penstock.lane (queue, held_until, number) WHERE held_until IS NOT NULL;

CREATE TABLE penstock.key_rule (
    queue integer NOT NULL,
    key text NOT NULL,
    max_active integer,
    weight integer NOT NULL,
    stride bigint NOT NULL,
    PRIMARY KEY (queue, key)
);

-- When the next claim of a key would be on time by its rate; forgotten once that is over.
CREATE TABLE penstock.key_rate (
    queue integer NOT NULL,
    key text NOT NULL,
    arrival_us bigint NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 50);

-- The job that is one of its kind. is_left is set once the job's record is gone: then it counts only until its window ends.
CREATE TABLE penstock.kind (
    queue integer NOT NULL,
    is_left boolean NOT NULL DEFAULT false,
    key text NOT NULL,
    job text NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 80);

CREATE INDEX kind_job ON penstock.kind (queue, job);
CREATE INDEX kind_left ON penstock.kind (queue, until) WHERE is_left;

CREATE TABLE penstock.child (
    queue integer NOT NULL,
    i integer NOT NULL,
    is_done boolean NOT NULL DEFAULT false,
    parent text NOT NULL,
    child_queue text NOT NULL,
    child text NOT NULL,
    state text,
    result text,
    PRIMARY KEY (queue, parent, child_queue, child)
) WITH (fillfactor = 80);

CREATE INDEX child_open ON penstock.child (queue, parent) WHERE NOT is_done;

CREATE TABLE penstock.relay (
    queue integer NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    target text NOT NULL,
    what text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (queue, number)
);

CREATE TABLE penstock.schedule (
    queue integer NOT NULL,
    name text NOT NULL,
    next_at bigint,
    last_at bigint,
    paused boolean NOT NULL DEFAULT false,
    body text NOT NULL,
    PRIMARY KEY (queue, name)
) WITH (fillfactor = 80);

CREATE INDEX schedule_due ON penstock.schedule (queue, next_at) WHERE next_at IS NOT NULL AND NOT paused;

-- The server's clock with the offset of the test kit, in microseconds. A clock that went back behind what the caller
-- has seen is waited out if it is by less than a minute; by more, it was set on purpose and is followed. A negative value
-- is the time itself: that of a call which takes several statements.
CREATE FUNCTION penstock.now_us(seen_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN seen_us < 0 THEN -seen_us
        WHEN seen_us - host.us BETWEEN 1 AND 59999999 THEN seen_us
        ELSE host.us
    END
    FROM (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + meta.value * 1000 AS us
        FROM penstock.meta
        WHERE meta.name = 'clock_offset_ms'
    ) AS host
$$;

-- Takes back those of the jobs just made that have ended already: another call made them, and they ran, while the calling
-- statement looked at an older state of things. `horizon` is the first transaction that it does not see: unless another one
-- began since, there is none. Runs with a newer snapshot than the statement that calls it.
CREATE FUNCTION penstock.take_back(of_queue integer, made text[], horizon bigint) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    twice text[];
BEGIN
    IF pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= horizon + 1 THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(item.id) INTO twice
    FROM unnest(made) AS item (id)
    WHERE (SELECT 1 FROM penstock.ended WHERE ended.queue = of_queue AND ended.id = item.id LIMIT 1) IS NOT NULL;
    DELETE FROM penstock.job WHERE job.queue = of_queue AND job.id = ANY (twice);
    RETURN coalesce(twice, '{}');
END
$$;

-- A new queue with its sequence. Runs with the rights of whoever migrated: applications need not be allowed to create.
CREATE FUNCTION penstock.open_queue(tenant_name text, queue_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    made integer;
BEGIN
    INSERT INTO penstock.queue (tenant, name, number)
    SELECT tenant_name, queue_name, coalesce(max(number), 0) + 1 FROM penstock.queue WHERE tenant = tenant_name
    ON CONFLICT DO NOTHING
    RETURNING n INTO made;
    IF made IS NOT NULL THEN
        EXECUTE format('CREATE SEQUENCE penstock.number_%s', made);
        UPDATE penstock.queue SET numbers = format('penstock.number_%s', made)::regclass WHERE n = made;
    END IF;
END
$$;
