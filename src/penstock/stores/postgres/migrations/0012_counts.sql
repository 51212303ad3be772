-- How many jobs a queue has in each state: what the events up to a place in the log add up to. The events behind it, and what no
-- event says of one job, are added by whoever reads; so no move writes here, and no transaction waits for another one.
-- is_stale says that the jobs have to be counted anew: after this migration, and where a process of an older version removed jobs.
CREATE TABLE penstock.queue_count (
    queue integer PRIMARY KEY,
    stamp xid8 NOT NULL DEFAULT '0',
    seq bigint NOT NULL DEFAULT 0,
    is_stale boolean NOT NULL DEFAULT false,
    blocked bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    active bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- What the event of many removed jobs does not say: in which states they were. seq is that event's number, NULL for jobs that were
-- set aside without an event. Rows are appended by the move and removed when they are added to queue_count.
CREATE TABLE penstock.removed_count (
    queue integer NOT NULL,
    seq bigint,
    state text NOT NULL,
    many bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX removed_count_event ON penstock.removed_count (queue, seq);

INSERT INTO penstock.queue_count (queue, is_stale) SELECT n, true FROM penstock.queue;

CREATE POLICY tenants ON penstock.queue_count
    USING ((queue = ANY ((SELECT penstock.my_queues())::integer[])) IS TRUE);
CREATE POLICY tenants ON penstock.removed_count
    USING ((queue = ANY ((SELECT penstock.my_queues())::integer[])) IS TRUE);

-- Where tenants are kept apart already, these tables too; otherwise `penstock.admit` will see to it.
DO $$
DECLARE
    insider text;
BEGIN
    IF EXISTS (SELECT 1 FROM penstock.member) THEN
        ALTER TABLE penstock.queue_count ENABLE ROW LEVEL SECURITY;
        ALTER TABLE penstock.removed_count ENABLE ROW LEVEL SECURITY;
    END IF;
    FOR insider IN SELECT DISTINCT role FROM penstock.member JOIN pg_catalog.pg_roles ON rolname = role LOOP
        EXECUTE pg_catalog.format('GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.queue_count TO %I', insider);
        EXECUTE pg_catalog.format('GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.removed_count TO %I', insider);
    END LOOP;
END
$$;

-- As before, and what a deleted queue left in the tables above.
CREATE OR REPLACE FUNCTION penstock.sweep_deleted(most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone integer;
    removed bigint;
    swept bigint := 0;
    relation text;
BEGIN
    IF NOT pg_catalog.has_table_privilege(penstock.caller()::name, 'penstock.event'::regclass, 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s may not delete events, and so it may not remove those of deleted queues', penstock.caller()
        );
    END IF;
    IF most IS NULL OR most < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'most: wanted at least 1 row';
    END IF;
    SELECT deleted_queue.n INTO gone FROM penstock.deleted_queue LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF gone IS NULL THEN
        RETURN false;
    END IF;
    FOREACH relation IN ARRAY ARRAY['event', 'idempotency', 'kind', 'child', 'key_rule', 'key_rate', 'lane', 'reader',
        'queue_count', 'removed_count'] LOOP
        EXECUTE pg_catalog.format(
            'DELETE FROM penstock.%1$I AS old USING ('
            'SELECT left_behind.ctid AS at FROM penstock.%1$I AS left_behind WHERE left_behind.queue = $1 LIMIT $2'
            ') AS batch WHERE old.ctid = batch.at',
            relation
        ) USING gone, most;
        GET DIAGNOSTICS removed = ROW_COUNT;
        swept := swept + removed;
    END LOOP;
    IF swept = 0 THEN
        DELETE FROM penstock.deleted_queue WHERE deleted_queue.n = gone;
    END IF;
    RETURN true;
END
$$;
