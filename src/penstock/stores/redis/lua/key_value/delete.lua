-- Delete an entry.
-- Keys: the entries of a namespace; their names. Arguments: the name; the version expected, or nothing.
-- Result: 1; 0 if there is none, or it was not as expected.
-- flags: allow-oom
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry or (ARGV[2] ~= '' and ARGV[2] ~= string.match(entry, '^%d+')) then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
