-- Keep a schedule; one of that name is replaced, and keeps what it fired last.
-- Arguments: the name; the body; its next instant or nothing; 1 if it is paused.
-- flags: allow-oom
-- include: shared/outcomes
local name, body, next_at, paused = ARGV[1], ARGV[2], tonumber(ARGV[3]) or false, ARGV[4] == '1'
local packed = redis.call('HGET', SCHEDULES, name)
gather(set, SCHEDULES, name, encode_schedule(next_at, packed and decode_schedule(packed)[SCHEDULE_LAST_AT], paused))
gather(set, BODIES, name, body)
if next_at and not paused then gather(added, DUE, next_at, name) else redis.call('ZREM', DUE, name) end
-- The instant was reckoned by this time: should the clock be set back before the queue's next move, that is known.
meta_updates.last_us = now_us
-- Its first instant may come sooner than anything that is waited for.
notify_for('pending')
return finish(redis.status_reply('OK'))
