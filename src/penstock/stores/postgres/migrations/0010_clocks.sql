-- A lease keeps its duration: one whose deadline lies further ahead has ended, because the clock was set back.
ALTER TABLE penstock.job ADD COLUMN lease_ms bigint;

-- The newest time that upkeep saw; and how the clock was last set back: at which new time, and by how much.
INSERT INTO penstock.meta (name, value) VALUES ('clock_high_us', 0), ('clock_step_at', 0), ('clock_step_back_ms', 0);

-- A clock that went back behind what the caller has seen is waited out if it is by up to a minute; by more, it was set and is
-- followed. A negative value is the time itself: that of a call which takes several statements.
CREATE OR REPLACE FUNCTION penstock.now_us(seen_us pg_catalog.int8) RETURNS pg_catalog.int8 LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN seen_us < 0 THEN -seen_us
        WHEN seen_us - host.us BETWEEN 1 AND 60000000 THEN seen_us
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

-- Keeps the newest time, and where the clock is more than a minute behind it, or behind what the caller has seen, that it was
-- set back. Processes notice one step one after the other: within five minutes it is the same one. Runs with the rights of the schema's
-- owner: nobody else needs to write there.
CREATE FUNCTION penstock.note_clock(seen_us bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    host_us bigint := penstock.now_us(0);
    high_us bigint;
    step_at bigint;
    back_ms bigint;
BEGIN
    SELECT value INTO high_us FROM penstock.meta WHERE name = 'clock_high_us';
    IF greatest(high_us, seen_us) <= host_us + 60000000 AND high_us > host_us - 30000000 THEN
        RETURN;
    END IF;
    SELECT value INTO high_us FROM penstock.meta WHERE name = 'clock_high_us' FOR UPDATE;
    IF greatest(high_us, seen_us) > host_us + 60000000 THEN
        SELECT value INTO step_at FROM penstock.meta WHERE name = 'clock_step_at';
        SELECT value INTO back_ms FROM penstock.meta WHERE name = 'clock_step_back_ms';
        IF high_us > host_us + 60000000 OR abs(step_at - host_us / 1000) > 300000 THEN
            back_ms := greatest(greatest(high_us, seen_us) / 1000, step_at + back_ms) - host_us / 1000;
            UPDATE penstock.meta SET value = host_us / 1000 WHERE name = 'clock_step_at';
            UPDATE penstock.meta SET value = back_ms WHERE name = 'clock_step_back_ms';
        END IF;
    END IF;
    UPDATE penstock.meta SET value = host_us WHERE name = 'clock_high_us';
END
$$;
