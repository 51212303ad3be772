-- Entries of a tenant that are no jobs, on shelves by their kind. No version is used twice.

CREATE TABLE penstock.kept (
    tenant text NOT NULL,
    shelf text NOT NULL,
    name text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    version bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (tenant, shelf, name)
);

-- Runs with the rights of whoever migrated: it has to see behind the wall.
CREATE FUNCTION penstock.my_tenants() RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
    SELECT array(SELECT tenant FROM penstock.member WHERE role = penstock.caller())
$$;

-- What belongs to the service itself, under *, is for those who may act for every tenant.
CREATE POLICY tenants ON penstock.kept
    USING ((ARRAY[tenant, '*'] && (SELECT penstock.my_tenants())) IS TRUE);

-- Where the wall stands already it goes around this table too; otherwise `penstock.admit` will see to it.
DO $$
DECLARE
    insider text;
BEGIN
    IF EXISTS (SELECT 1 FROM penstock.member) THEN
        ALTER TABLE penstock.kept ENABLE ROW LEVEL SECURITY;
    END IF;
    FOR insider IN SELECT DISTINCT role FROM penstock.member JOIN pg_roles ON rolname = role LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.kept TO %I', insider);
    END LOOP;
END
$$;
