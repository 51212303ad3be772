-- Take an entry off a shelf.
-- Keys: the shelf; its names. Arguments: the name; the version expected, or nothing.
-- Result: 1; 0 if there is none, or it was not as expected.
-- flags: allow-oom
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept or (ARGV[2] ~= '' and ARGV[2] ~= string.match(kept, '^%d+')) then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
