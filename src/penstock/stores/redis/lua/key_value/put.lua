-- Put an entry in the place of the one of that name.
-- Keys: the entries of a namespace; their names; the tenant's last version. Arguments: the name; the body; the version expected, or nothing.
-- Result: the new version; 0 if the entry was not as expected.
local entry = redis.call('HGET', KEYS[1], ARGV[1])
local version = entry and string.match(entry, '^%d+') or '0'
if ARGV[3] ~= '' and ARGV[3] ~= version then return 0 end
local new = redis.call('HINCRBY', KEYS[3], 'version', 1)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d ', new) .. ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return new
