-- Every role that may use the schema can call functions that run with the rights of its owner: so these ask what the caller may do.

-- What a caller says that it has seen of the clock counts where it may act for every tenant. Of a role that was admitted to some, it
-- would move schedules of others and be told to all by doctor; then the time that the database has kept tells of a step.
CREATE OR REPLACE FUNCTION penstock.note_clock(seen_us bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    host_us bigint := penstock.now_us(0);
    told_us bigint := CASE WHEN penstock.may_act_for('*') THEN coalesce(seen_us, 0) ELSE 0 END;
    high_us bigint;
    step_at bigint;
    back_ms bigint;
BEGIN
    IF NOT pg_catalog.has_table_privilege(penstock.caller()::name, 'penstock.job'::regclass, 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = pg_catalog.format(
            'the role %s may not update jobs, and so it may not note the clock', penstock.caller()
        );
    END IF;
    SELECT value INTO high_us FROM penstock.meta WHERE name = 'clock_high_us';
    IF greatest(high_us, told_us) <= host_us + 60000000 AND high_us > host_us - 30000000 THEN
        RETURN;
    END IF;
    SELECT value INTO high_us FROM penstock.meta WHERE name = 'clock_high_us' FOR UPDATE;
    IF greatest(high_us, told_us) > host_us + 60000000 THEN
        SELECT value INTO step_at FROM penstock.meta WHERE name = 'clock_step_at';
        SELECT value INTO back_ms FROM penstock.meta WHERE name = 'clock_step_back_ms';
        IF high_us > host_us + 60000000 OR abs(step_at - host_us / 1000) > 300000 THEN
            back_ms := greatest(greatest(high_us, told_us) / 1000, step_at + back_ms) - host_us / 1000;
            UPDATE penstock.meta SET value = host_us / 1000 WHERE name = 'clock_step_at';
            UPDATE penstock.meta SET value = back_ms WHERE name = 'clock_step_back_ms';
        END IF;
    END IF;
    UPDATE penstock.meta SET value = host_us WHERE name = 'clock_high_us';
END
$$;

-- As before, for roles that may delete events.
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
