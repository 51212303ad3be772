-- Give a queue its number among those of its tenant. Not in the queue's slot: the registry is the tenant's.
-- Called where the queue itself is not there: a number that a deletion has released is not given again.
-- Keys: the tenant's registry; the newest time that a deleted queue used. Arguments: the queue's name; the number it had
--   before the server lost it, or nothing.
-- Result: the number; that time in microseconds.
-- flags: allow-oom
local released = tonumber(redis.call('HGET', KEYS[1], '*') or 0)
local number = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if number <= released then
  local highest, had = released, tonumber(ARGV[2])
  if had and had <= released then had = nil end
  local queues = redis.call('HGETALL', KEYS[1])
  for i = 2, #queues, 2 do
    local taken = tonumber(queues[i])
    highest = math.max(highest, taken)
    if taken == had then had = nil end
  end
  number = had or highest + 1
  redis.call('HSET', KEYS[1], ARGV[1], number)
end
return {number, redis.call('HGET', KEYS[2], 'last_us') or '0'}
