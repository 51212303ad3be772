-- Give a queue its number among those of its tenant. Not in the queue's slot: the registry is the tenant's.
-- Keys: the tenant's registry. Arguments: the queue's name; the number it had before the server lost it, or nothing.
-- Result: the number.
-- flags: allow-oom
local number = redis.call('HGET', KEYS[1], ARGV[1])
if not number then
  local highest, had = 0, tonumber(ARGV[2])
  local queues = redis.call('HGETALL', KEYS[1])
  for i = 2, #queues, 2 do
    local taken = tonumber(queues[i])
    highest = math.max(highest, taken)
    if taken == had then had = nil end
  end
  number = had or highest + 1
  redis.call('HSET', KEYS[1], ARGV[1], number)
end
return tonumber(number)
