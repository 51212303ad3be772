-- Lets go of idempotency keys that were taken for jobs which were not made after all: somebody else made one with the same
-- id while the calling statement waited for him. Sees what that statement wrote. Answers how many.
CREATE FUNCTION penstock.let_go(of_queue integer, keys text[], jobs text[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    many bigint;
BEGIN
    DELETE FROM penstock.idempotency
    USING unnest(keys, jobs) AS item (key, job)
    WHERE idempotency.queue = of_queue AND idempotency.key = item.key AND idempotency.job = item.job;
    GET DIAGNOSTICS many = ROW_COUNT;
    RETURN many;
END
$$;
