-- A SECURITY DEFINER function resolves names by its own search_path, and PostgreSQL searches pg_temp before everything else
-- unless that path names pg_temp. With `search_path = pg_catalog` alone, a caller's temporary view pg_roles or temporary domain
-- text was used in the place of the server's own, with the rights of the schema's owner. So pg_temp stands last in
-- the path of each such function, and names are qualified besides. Functions keep their owners and their privileges.

-- The role that calls, also from within a function that runs with its owner's rights.
CREATE OR REPLACE FUNCTION penstock.caller() RETURNS pg_catalog.text LANGUAGE sql STABLE AS $$
    SELECT CASE pg_catalog.current_setting('role')
        WHEN 'none' THEN session_user::pg_catalog.text
        ELSE pg_catalog.current_setting('role')
    END
$$;

CREATE OR REPLACE FUNCTION penstock.my_queues() RETURNS pg_catalog.int4[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN array(
        SELECT queue.n
        FROM penstock.member
        JOIN penstock.queue ON member.tenant IN (queue.tenant, '*')
        WHERE member.role = penstock.caller()
    );
END
$$;

CREATE OR REPLACE FUNCTION penstock.my_tenants() RETURNS pg_catalog.text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array(SELECT member.tenant FROM penstock.member WHERE member.role = penstock.caller())
$$;

CREATE OR REPLACE FUNCTION penstock.is_admitted(to_tenant pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM penstock.member
        WHERE member.role = penstock.caller() AND member.tenant IN (to_tenant, '*')
    );
END
$$;

-- A new queue with its sequence. Every role that may use the schema can call this: so it asks first whether the caller may
-- insert jobs, and whether it was admitted to the tenant where roles are held to theirs.
CREATE OR REPLACE FUNCTION penstock.open_queue(tenant_name pg_catalog.text, queue_name pg_catalog.text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made pg_catalog.int4;
    insider pg_catalog.text;
BEGIN
    IF NOT pg_catalog.has_table_privilege(
        penstock.caller()::pg_catalog.name, 'penstock.job'::pg_catalog.regclass, 'INSERT'
    ) THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s may not insert jobs, and so it may not open queues', penstock.caller()
        );
    END IF;
    IF EXISTS (SELECT 1 FROM penstock.member)
        AND NOT EXISTS (
            SELECT 1 FROM penstock.member
            WHERE member.role = penstock.caller() AND member.tenant IN (tenant_name, '*')
        )
        AND NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_roles
            WHERE pg_roles.rolname = penstock.caller()
                AND (pg_roles.rolsuper OR pg_roles.rolbypassrls OR pg_roles.rolname = current_user)
        )
    THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s was not admitted to the tenant %s', penstock.caller(), tenant_name
        );
    END IF;
    INSERT INTO penstock.queue (tenant, name, number)
    SELECT tenant_name, queue_name, coalesce(pg_catalog.max(queue.number), 0) + 1
    FROM penstock.queue
    WHERE queue.tenant = tenant_name
    ON CONFLICT DO NOTHING
    RETURNING queue.n INTO made;
    IF made IS NOT NULL THEN
        EXECUTE pg_catalog.format('CREATE SEQUENCE penstock.number_%s', made);
        UPDATE penstock.queue SET numbers = pg_catalog.format('penstock.number_%s', made)::pg_catalog.regclass
        WHERE queue.n = made;
        FOR insider IN
            SELECT member.role
            FROM penstock.member
            JOIN pg_catalog.pg_roles ON pg_roles.rolname = member.role
            WHERE member.tenant IN (tenant_name, '*')
        LOOP
            EXECUTE pg_catalog.format('GRANT USAGE, SELECT ON SEQUENCE penstock.number_%s TO %I', made, insider);
        END LOOP;
    END IF;
END
$$;

-- Not with its owner's rights, but called by the owner.
ALTER FUNCTION penstock.admit(pg_catalog.text, pg_catalog.text) SET search_path = pg_catalog, pg_temp;

-- The functions below run with the rights of the caller, in the caller's search_path. A path of their own would cost more
-- than they do: names that something else could stand for are qualified, and operators are those of exactly these types.
CREATE OR REPLACE FUNCTION penstock.now_us(seen_us pg_catalog.int8) RETURNS pg_catalog.int8 LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN seen_us < 0 THEN -seen_us
        WHEN seen_us - host.us BETWEEN 1 AND 59999999 THEN seen_us
        ELSE host.us
    END
    FROM (
        SELECT
            (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000::pg_catalog.numeric)::pg_catalog.int8
                + meta.value * 1000 AS us
        FROM penstock.meta
        WHERE meta.name = 'clock_offset_ms'
    ) AS host
$$;

CREATE OR REPLACE FUNCTION penstock.take_back(
    of_queue pg_catalog.int4, made pg_catalog.text[], horizon pg_catalog.int8
) RETURNS pg_catalog.text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    twice pg_catalog.text[];
BEGIN
    IF pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::pg_catalog.int8 <= horizon + 1 THEN
        RETURN '{}';
    END IF;
    SELECT pg_catalog.array_agg(item.id) INTO twice
    FROM pg_catalog.unnest(made) AS item (id)
    WHERE (SELECT 1 FROM penstock.ended WHERE ended.queue = of_queue AND ended.id = item.id LIMIT 1) IS NOT NULL;
    DELETE FROM penstock.job WHERE job.queue = of_queue AND job.id = ANY (twice);
    RETURN coalesce(twice, '{}');
END
$$;

CREATE OR REPLACE FUNCTION penstock.let_go(
    of_queue pg_catalog.int4, keys pg_catalog.text[], jobs pg_catalog.text[]
) RETURNS pg_catalog.int8
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    many pg_catalog.int8;
BEGIN
    DELETE FROM penstock.idempotency
    USING ROWS FROM (pg_catalog.unnest(keys), pg_catalog.unnest(jobs)) AS item (key, job)
    WHERE idempotency.queue = of_queue AND idempotency.key = item.key AND idempotency.job = item.job;
    GET DIAGNOSTICS many = ROW_COUNT;
    RETURN many;
END
$$
