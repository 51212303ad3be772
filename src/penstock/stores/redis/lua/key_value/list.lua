-- Entries of a namespace by name.
-- Keys: the entries of a namespace; their names. Arguments: where names begin, as ZRANGE takes it; how many at most.
-- Result: names and the entries under them, in turn.
-- flags: allow-oom,no-writes
local names = redis.call('ZRANGE', KEYS[2], ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
local out = {}
for i, name in ipairs(names) do
  out[2 * i - 1], out[2 * i] = name, redis.call('HGET', KEYS[1], name)
end
return out
