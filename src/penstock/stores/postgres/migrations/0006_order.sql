-- Ids, keys and names are ordered by their bytes, not by the rules of a language: comparing by those takes many times as
-- long, a search in an index compares some twenty times, and an index in such an order is no longer in order when an
-- upgrade of the operating system changes the rules.
DO $$
DECLARE
    old record;
    given record;
BEGIN
    -- The view stands on columns that change. It comes back with the rights and options it had.
    SELECT reloptions AS options, relacl AS rights INTO old FROM pg_class WHERE oid = 'penstock.record'::regclass;
    DROP VIEW penstock.record;
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
    FOR given IN SELECT * FROM aclexplode(old.rights) LOOP
        EXECUTE format(
            'GRANT %s ON penstock.record TO %s %s',
            given.privilege_type,
            CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE format('%I', pg_get_userbyid(given.grantee)) END,
            CASE WHEN given.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END
        );
    END LOOP;
END
$$;
