-- Forget a schedule.
-- Arguments: the name.
-- Result: 1; 0 if there is none of that name.
-- flags: allow-oom
-- include: keys
redis.call('HDEL', BODIES, ARGV[1])
redis.call('ZREM', DUE, ARGV[1])
return redis.call('HDEL', SCHEDULES, ARGV[1])
