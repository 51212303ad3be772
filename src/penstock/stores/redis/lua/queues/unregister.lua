-- Take a deleted queue out of the registry, unless it was made anew with another number.
-- Keys: the tenant's registry. Arguments: the queue's name, its number.
-- Result: 1; 0 where another number stands there.
-- flags: allow-oom
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
