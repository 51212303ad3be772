-- Write the version of the layout, unless a later one stands there.
-- Keys: what the store knows of itself. Arguments: the version.
-- Result: the version that stands there now.
-- flags: allow-oom
local written = tonumber(redis.call('HGET', KEYS[1], 'schema') or 0)
if written >= tonumber(ARGV[1]) then return written end
redis.call('HSET', KEYS[1], 'schema', ARGV[1])
return tonumber(ARGV[1])
