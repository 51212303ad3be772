-- Give a queue its number among those of its tenant. Not in the queue's slot: the registry is the tenant's.
-- Keys: the tenant's registry. Arguments: the queue's name. Result: the number.
-- flags: allow-oom
local number = redis.call('HGET', KEYS[1], ARGV[1])
if not number then
  number = redis.call('HLEN', KEYS[1]) + 1
  redis.call('HSET', KEYS[1], ARGV[1], number)
end
return tonumber(number)
