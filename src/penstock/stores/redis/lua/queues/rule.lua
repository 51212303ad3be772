-- Give a key a limit or weight of its own, or take them back.
-- Arguments: the key; its limit or nothing; its weight.
-- flags: allow-oom
-- include: outcomes
local lane = lane_of(ARGV[1])
lane[LIMIT], lane[WEIGHT] = tonumber(ARGV[2]) or false, tonumber(ARGV[3])
touch(ARGV[1])
ring_for('pending')
return finish(redis.status_reply('OK'))
