-- Name a queue that is there among those of its tenant, if it is not: a deletion may have just taken it off.
-- Keys: the tenant's registry. Arguments: the queue's name, its number.
-- flags: allow-oom
return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
