-- Forget a schedule.
-- Arguments: the name.
-- Result: 1; 0 if there is none of that name.
-- flags: allow-oom
local name = ARGV[1]
redis.call('HDEL', BODIES, name)
redis.call('ZREM', DUE, name)
return redis.call('HDEL', SCHEDULES, name)
