-- Keep a schedule; one of that name is replaced, and keeps what it fired last.
-- Arguments: the name; the body; its next instant or nothing; 1 if it is paused.
-- flags: allow-oom
-- include: outcomes
local packed = redis.call('HGET', SCHEDULES, ARGV[1])
local next_at, paused = tonumber(ARGV[3]) or false, ARGV[4] == '1'
gather(set, SCHEDULES, ARGV[1], cmsgpack.pack({next_at, packed and cmsgpack.unpack(packed)[2], paused}))
gather(set, BODIES, ARGV[1], ARGV[2])
if next_at and not paused then gather(added, DUE, next_at, ARGV[1]) else redis.call('ZREM', DUE, ARGV[1]) end
-- Its first instant may come sooner than anything that is waited for.
ring_for('pending')
return finish(redis.status_reply('OK'))
