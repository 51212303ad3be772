-- Name a queue among those of all tenants.
-- Keys: the list. Arguments: tenant/queue.
-- flags: allow-oom
return redis.call('SADD', KEYS[1], ARGV[1])
