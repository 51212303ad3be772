-- A wall between tenants, by row-level security: a role sees and changes only what lies in queues of the tenants that it
-- was admitted to. It stands from the first `penstock.admit` on. Before that nothing changes, and for the owner of the
-- tables nothing ever does.

-- Whom a role may act for; * is every tenant.
CREATE TABLE penstock.member (
    role text NOT NULL,
    tenant text NOT NULL,
    PRIMARY KEY (role, tenant)
);

-- With no policy at all: nobody but the owner, whatever else was granted.
ALTER TABLE penstock.member ENABLE ROW LEVEL SECURITY;

-- Who calls, also from within a function that runs with its owner's rights.
CREATE FUNCTION penstock.caller() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$$;

-- Runs with the rights of whoever migrated: it has to see behind the wall.
CREATE FUNCTION penstock.my_queues() RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    RETURN array(
        SELECT queue.n
        FROM penstock.member
        JOIN penstock.queue ON member.tenant IN (queue.tenant, '*')
        WHERE member.role = penstock.caller()
    );
END
$$;

-- The list is asked for once per statement. IS TRUE keeps it a filter: as a condition on the index it could change plans.
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT attrelid::regclass AS relation, attname AS number
        FROM pg_attribute
        JOIN pg_class ON pg_class.oid = attrelid AND relkind IN ('r', 'p')
        WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'penstock.queue'::regclass)
            AND attname = CASE WHEN attrelid = 'penstock.queue'::regclass THEN 'n' ELSE 'queue' END
    LOOP
        EXECUTE format(
            'CREATE POLICY tenants ON %s USING ((%I = ANY ((SELECT penstock.my_queues())::integer[])) IS TRUE)',
            found.relation, found.number
        );
    END LOOP;
END
$$;

-- Lets a role act for a tenant, or for all with *, and puts the wall up. For the owner of the tables to call.
CREATE FUNCTION penstock.admit(to_role text, to_tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    found record;
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE feature_not_supported USING MESSAGE = 'a wall between tenants needs PostgreSQL 15 or newer';
    END IF;
    INSERT INTO penstock.member (role, tenant) VALUES (to_role, to_tenant) ON CONFLICT DO NOTHING;
    -- The view would show whatever its owner sees.
    ALTER VIEW penstock.record SET (security_invoker = true);
    FOR found IN
        SELECT pg_class.oid::regclass AS relation, relrowsecurity AS is_walled
        FROM pg_policy
        JOIN pg_class ON pg_class.oid = polrelid
        WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'penstock.queue'::regclass)
    LOOP
        IF NOT found.is_walled THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', found.relation);
        END IF;
        IF found.relation = 'penstock.queue'::regclass THEN
            -- A queue stays where it is, and with whom.
            EXECUTE (
                SELECT format('GRANT SELECT, UPDATE (%s) ON penstock.queue TO %I', string_agg(format('%I', attname), ', '), to_role)
                FROM pg_attribute
                WHERE attrelid = 'penstock.queue'::regclass
                    AND attnum > 0
                    AND NOT attisdropped
                    AND attname NOT IN ('n', 'tenant', 'name', 'number', 'numbers')
            );
        ELSE
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I', found.relation, to_role);
        END IF;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'penstock.queue'::regclass), to_role);
    EXECUTE format('GRANT SELECT ON penstock.meta, penstock.record TO %I', to_role);
    FOR found IN SELECT numbers FROM penstock.queue WHERE to_tenant IN (tenant, '*') LOOP
        EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE %s TO %I', found.numbers, to_role);
    END LOOP;
END
$$;

-- As before, and only for a tenant that the caller was admitted to, where the wall stands.
CREATE OR REPLACE FUNCTION penstock.open_queue(tenant_name text, queue_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    made integer;
    insider text;
BEGIN
    IF EXISTS (SELECT 1 FROM penstock.member)
        AND NOT EXISTS (
            SELECT 1 FROM penstock.member WHERE role = penstock.caller() AND tenant IN (tenant_name, '*')
        )
        AND NOT EXISTS (
            SELECT 1 FROM pg_roles
            WHERE rolname = penstock.caller() AND (rolsuper OR rolbypassrls OR rolname = current_user)
        )
    THEN
        RAISE insufficient_privilege
            USING MESSAGE = format('the role %s was not admitted to the tenant %s', penstock.caller(), tenant_name);
    END IF;
    INSERT INTO penstock.queue (tenant, name, number)
    SELECT tenant_name, queue_name, coalesce(max(number), 0) + 1 FROM penstock.queue WHERE tenant = tenant_name
    ON CONFLICT DO NOTHING
    RETURNING n INTO made;
    IF made IS NOT NULL THEN
        EXECUTE format('CREATE SEQUENCE penstock.number_%s', made);
        UPDATE penstock.queue SET numbers = format('penstock.number_%s', made)::regclass WHERE n = made;
        FOR insider IN
            SELECT role FROM penstock.member JOIN pg_roles ON rolname = role WHERE tenant IN (tenant_name, '*')
        LOOP
            EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE penstock.number_%s TO %I', made, insider);
        END LOOP;
    END IF;
END
$$;
