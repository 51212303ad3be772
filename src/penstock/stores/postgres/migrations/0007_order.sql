-- Ids, keys and names are ordered by their bytes, not by the rules of a language: comparing by those takes many times as
-- long, a search in an index compares some twenty times, and an index in such an order is no longer in order when an
-- upgrade of the operating system changes the rules.
DO $$
DECLARE
    others text;
    old record;
    given record;
    again text[];
BEGIN
    SELECT string_agg(DISTINCT pg_rewrite.ev_class::regclass::text, ', ') INTO others
    FROM pg_rewrite
    JOIN pg_depend ON pg_depend.classid = 'pg_rewrite'::regclass AND pg_depend.objid = pg_rewrite.oid
    JOIN pg_class ON pg_depend.refclassid = 'pg_class'::regclass AND pg_class.oid = pg_depend.refobjid
    WHERE pg_class.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'penstock.queue'::regclass)
        AND pg_rewrite.ev_class NOT IN (pg_depend.refobjid, 'penstock.record'::regclass);
    IF others IS NOT NULL THEN
        RAISE dependent_objects_still_exist USING MESSAGE = format(
            'columns change that these stand on, which are not Penstock''s: %s; drop them, migrate, and make them again', others
        );
    END IF;

    -- Moves come to the queue first, then to the view, then to its tables: in the same order, nobody at work waits for us
    -- while we wait for him.
    LOCK TABLE penstock.queue IN ACCESS EXCLUSIVE MODE;

    -- The view stands on such columns. It comes back as it was: whose it is, who may look at what, and what was said of it.
    SELECT
        reloptions AS options, pg_get_userbyid(relowner) AS owner, obj_description(oid, 'pg_class') AS said
    INTO old
    FROM pg_class WHERE oid = 'penstock.record'::regclass;
    SELECT array_agg(format(
        'GRANT %s %s ON penstock.record TO %s %s',
        one.privilege_type,
        '(' || quote_ident(whole.attname) || ')',
        CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(one.grantee)) END,
        CASE WHEN one.is_grantable THEN 'WITH GRANT OPTION' END
    ))
    INTO again
    FROM (
        SELECT NULL::name AS attname, relacl AS rights FROM pg_class WHERE oid = 'penstock.record'::regclass
        UNION ALL
        SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'penstock.record'::regclass
    ) AS whole
    CROSS JOIN LATERAL aclexplode(whole.rights) AS one;
    DROP VIEW penstock.record;
    LOCK TABLE
        penstock.job, penstock.ended, penstock.idempotency, penstock.kind, penstock.lane, penstock.key_rule,
        penstock.key_rate, penstock.child, penstock.schedule, penstock.reader, penstock.member, penstock.kept, penstock.meta
        IN ACCESS EXCLUSIVE MODE;
    DROP POLICY tenants ON penstock.kept;

    ALTER TABLE penstock.job ALTER id TYPE text COLLATE "C", ALTER key TYPE text COLLATE "C";
    ALTER TABLE penstock.ended ALTER id TYPE text COLLATE "C", ALTER key TYPE text COLLATE "C";
    ALTER TABLE penstock.idempotency ALTER key TYPE text COLLATE "C", ALTER job TYPE text COLLATE "C";
    ALTER TABLE penstock.kind ALTER key TYPE text COLLATE "C", ALTER job TYPE text COLLATE "C";
    ALTER TABLE penstock.lane ALTER key TYPE text COLLATE "C";
    ALTER TABLE penstock.key_rule ALTER key TYPE text COLLATE "C";
    ALTER TABLE penstock.key_rate ALTER key TYPE text COLLATE "C";
    ALTER TABLE penstock.child
        ALTER parent TYPE text COLLATE "C", ALTER child_queue TYPE text COLLATE "C", ALTER child TYPE text COLLATE "C";
    ALTER TABLE penstock.schedule ALTER name TYPE text COLLATE "C";
    ALTER TABLE penstock.reader ALTER name TYPE text COLLATE "C";
    ALTER TABLE penstock.queue ALTER tenant TYPE text COLLATE "C", ALTER name TYPE text COLLATE "C";
    ALTER TABLE penstock.member ALTER role TYPE text COLLATE "C", ALTER tenant TYPE text COLLATE "C";
    ALTER TABLE penstock.kept ALTER tenant TYPE text COLLATE "C", ALTER shelf TYPE text COLLATE "C";
    ALTER TABLE penstock.meta ALTER name TYPE text COLLATE "C";

    CREATE POLICY tenants ON penstock.kept
        USING ((ARRAY[tenant, '*'] && (SELECT penstock.my_tenants())) IS TRUE);
    CREATE VIEW penstock.record AS
    SELECT job.*, NULL::bigint AS ended_at, NULL::bigint AS prune_at, NULL::text AS result FROM penstock.job
    UNION ALL
    SELECT * FROM penstock.ended;
    IF old.options IS NOT NULL THEN
        EXECUTE format('ALTER VIEW penstock.record SET (%s)', array_to_string(old.options, ', '));
    END IF;
    EXECUTE format('COMMENT ON VIEW penstock.record IS %L', old.said);
    -- What new tables are granted by default was not granted here.
    FOR given IN
        SELECT DISTINCT one.grantee
        FROM pg_class
        CROSS JOIN LATERAL aclexplode(relacl) AS one
        WHERE oid = 'penstock.record'::regclass AND one.grantee <> relowner
    LOOP
        EXECUTE format(
            'REVOKE ALL ON penstock.record FROM %s',
            CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END
        );
    END LOOP;
    IF old.owner <> current_user THEN
        EXECUTE format('ALTER VIEW penstock.record OWNER TO %I', old.owner);
    END IF;
    FOR given IN SELECT * FROM unnest(again) AS one (statement) LOOP
        EXECUTE given.statement;
    END LOOP;
END
$$;
