-- The schedules whose next instant has come, oldest first, each as its name, its packed part and its body.
-- Arguments: how many at most.
-- flags: allow-oom,no-writes
-- include: shared/codec
local names = redis.call('ZRANGE', DUE, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, ARGV[1])
local out = {}
for i, name in ipairs(names) do
  out[i] = {name, redis.call('HGET', SCHEDULES, name), redis.call('HGET', BODIES, name)}
end
return out
