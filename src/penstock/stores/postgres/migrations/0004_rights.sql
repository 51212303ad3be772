-- A role that is admitted to a tenant has what it needs there and nothing else, whatever it was granted before.
CREATE OR REPLACE FUNCTION penstock.admit(to_role text, to_tenant text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    found record;
    space regnamespace;
    owner name;
    other name;
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE feature_not_supported USING MESSAGE = 'a wall between tenants needs PostgreSQL 15 or newer';
    END IF;
    IF to_tenant IS NULL OR to_tenant !~ '^([A-Za-z0-9][A-Za-z0-9._-]{0,127}|\*)$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'found the tenant %L, wanted 1 to 128 letters, digits, ''.'', ''_'' or ''-'', the first a letter or digit, or * for all',
            to_tenant
        );
    END IF;
    SELECT relnamespace, pg_get_userbyid(relowner) INTO space, owner FROM pg_class WHERE oid = 'penstock.queue'::regclass;
    IF to_role = owner THEN
        RAISE invalid_parameter_value
            USING MESSAGE = format('the role %s owns the tables: no wall holds it back', to_role);
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM %I', space, to_role);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %s FROM %I', space, to_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %s REVOKE ALL ON TABLES FROM %I', owner, space, to_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %s REVOKE ALL ON SEQUENCES FROM %I', owner, space, to_role);
    SELECT pg_roles.rolname INTO other
    FROM pg_roles AS mine
    CROSS JOIN pg_roles
    WHERE mine.rolname = to_role
        AND NOT mine.rolsuper
        AND pg_has_role(mine.oid, pg_roles.oid, 'MEMBER')
        AND has_table_privilege(pg_roles.oid, 'penstock.meta', 'INSERT, UPDATE, DELETE')
    LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'the role %s is a member of %s, which may write all tables: take it out of there first', to_role, other
        );
    END IF;
    INSERT INTO penstock.member (role, tenant) VALUES (to_role, to_tenant) ON CONFLICT DO NOTHING;
    -- The view would show whatever its owner sees.
    ALTER VIEW penstock.record SET (security_invoker = true);
    FOR found IN
        SELECT pg_class.oid::regclass AS relation, relrowsecurity AS is_walled
        FROM pg_policy
        JOIN pg_class ON pg_class.oid = polrelid
        WHERE relnamespace = space
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
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', space, to_role);
    EXECUTE format('GRANT SELECT ON penstock.meta, penstock.record TO %I', to_role);
    FOR found IN
        SELECT DISTINCT queue.numbers
        FROM penstock.queue
        JOIN penstock.member ON member.role = to_role AND member.tenant IN (queue.tenant, '*')
    LOOP
        EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE %s TO %I', found.numbers, to_role);
    END LOOP;
END
$$;

-- Whether the caller sees jobs of a tenant where the wall stands. Runs with the rights of whoever migrated.
CREATE FUNCTION penstock.is_admitted(to_tenant text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM penstock.member WHERE role = penstock.caller() AND tenant IN (to_tenant, '*')
    );
END
$$;
