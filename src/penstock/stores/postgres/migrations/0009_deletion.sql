-- Queues can be deleted. Their numbers are not given again: `numbering` keeps the highest one that a deleted queue had.
-- `made` tells a queue from an earlier one of the same name; it is empty for queues from before.
ALTER TABLE penstock.queue ADD COLUMN made text NOT NULL DEFAULT '';

CREATE TABLE penstock.numbering (
    tenant text COLLATE "C" PRIMARY KEY,
    last integer NOT NULL
);

-- Deleted queues whose events and keys are still to be removed, in batches.
CREATE TABLE penstock.deleted_queue (
    n integer PRIMARY KEY
);

-- With no policy at all: nobody but the owner, whatever else was granted. Functions of the owner's come to them.
ALTER TABLE penstock.numbering ENABLE ROW LEVEL SECURITY;
ALTER TABLE penstock.deleted_queue ENABLE ROW LEVEL SECURITY;

-- Whether the caller may act for a tenant: everybody before the first `penstock.admit`, then those that were admitted, and
-- those whom no row-level security holds back. For functions that run with the rights of the schema's owner.
CREATE FUNCTION penstock.may_act_for(for_tenant text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT 1 FROM penstock.member)
        OR EXISTS (
            SELECT 1 FROM penstock.member
            WHERE member.role = penstock.caller() AND member.tenant IN (for_tenant, '*')
        )
        OR EXISTS (
            SELECT 1 FROM pg_catalog.pg_roles
            WHERE pg_roles.rolname = penstock.caller()
                AND (pg_roles.rolsuper OR pg_roles.rolbypassrls OR pg_roles.rolname = current_user)
        )
$$;

-- A new queue with its sequence, and a number that no queue of the tenant ever had. Runs with the rights of the schema's
-- owner: applications need not be allowed to create.
CREATE OR REPLACE FUNCTION penstock.open_queue(tenant_name text, queue_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened integer;
    insider text;
BEGIN
    IF NOT pg_catalog.has_table_privilege(penstock.caller()::name, 'penstock.job'::regclass, 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s may not insert jobs, and so it may not open queues', penstock.caller()
        );
    END IF;
    IF NOT penstock.may_act_for(tenant_name) THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s was not admitted to the tenant %s', penstock.caller(), tenant_name
        );
    END IF;
    INSERT INTO penstock.queue (tenant, name, number, made)
    SELECT
        tenant_name,
        queue_name,
        greatest(
            coalesce((SELECT pg_catalog.max(queue.number) FROM penstock.queue WHERE queue.tenant = tenant_name), 0),
            coalesce((SELECT numbering.last FROM penstock.numbering WHERE numbering.tenant = tenant_name), 0)
        ) + 1,
        pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', '')
    ON CONFLICT DO NOTHING
    RETURNING n INTO opened;
    IF opened IS NOT NULL THEN
        EXECUTE pg_catalog.format('CREATE SEQUENCE penstock.number_%s', opened);
        UPDATE penstock.queue SET numbers = pg_catalog.format('penstock.number_%s', opened)::pg_catalog.regclass
        WHERE queue.n = opened;
        FOR insider IN
            SELECT member.role
            FROM penstock.member
            JOIN pg_catalog.pg_roles ON pg_roles.rolname = member.role
            WHERE member.tenant IN (tenant_name, '*')
        LOOP
            EXECUTE pg_catalog.format('GRANT USAGE, SELECT ON SEQUENCE penstock.number_%s TO %I', opened, insider);
        END LOOP;
    END IF;
END
$$;

-- Takes a queue away that the caller holds, with its sequence, and keeps its number from being given again. Nothing is
-- changed where it still has jobs, schedules or relay entries, whatever role calls. What else it leaves behind is swept later:
-- nobody finds it without the queue's row. Runs with the rights of the schema's owner.
CREATE FUNCTION penstock.delete_queue(of_queue integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
BEGIN
    IF NOT pg_catalog.has_table_privilege(penstock.caller()::name, 'penstock.job'::regclass, 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s may not delete jobs, and so it may not delete queues', penstock.caller()
        );
    END IF;
    -- A queue of another tenant is answered like one that is not there, and not locked.
    SELECT queue.tenant, queue.number INTO found FROM penstock.queue
    WHERE queue.n = of_queue AND penstock.may_act_for(queue.tenant)
    FOR UPDATE;
    IF found.number IS NULL THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT 1 FROM penstock.job WHERE job.queue = of_queue)
        OR EXISTS (SELECT 1 FROM penstock.ended WHERE ended.queue = of_queue)
        OR EXISTS (SELECT 1 FROM penstock.schedule WHERE schedule.queue = of_queue)
        OR EXISTS (SELECT 1 FROM penstock.relay WHERE relay.queue = of_queue)
    THEN
        RETURN false;
    END IF;
    INSERT INTO penstock.numbering (tenant, last) VALUES (found.tenant, found.number)
    ON CONFLICT (tenant) DO UPDATE SET last = greatest(numbering.last, excluded.last);
    INSERT INTO penstock.deleted_queue (n) VALUES (of_queue);
    DELETE FROM penstock.queue WHERE queue.n = of_queue;
    -- By the queue's own number: roles may be allowed to write the column that names the sequence.
    EXECUTE pg_catalog.format('DROP SEQUENCE penstock.number_%s', of_queue);
    RETURN true;
END
$$;

-- Removes up to `most` rows that a deleted queue left behind in each table; false when nothing is left of any. Runs with
-- the rights of the schema's owner: behind a wall between tenants nobody else sees these rows.
CREATE FUNCTION penstock.sweep_deleted(most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone integer;
    removed bigint;
    swept bigint := 0;
    relation text;
BEGIN
    IF most IS NULL OR most < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'most: wanted at least 1 row';
    END IF;
    SELECT deleted_queue.n INTO gone FROM penstock.deleted_queue LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF gone IS NULL THEN
        RETURN false;
    END IF;
    FOREACH relation IN ARRAY ARRAY['event', 'idempotency', 'kind', 'child', 'key_rule', 'key_rate', 'lane', 'reader'] LOOP
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
