-- Release the number of a queue that is about to be deleted, and keep the newest time it used: before the queue goes, so
-- that whatever makes it anew gets another number and no earlier time.
-- Keys: the tenant's registry; the newest time that a deleted queue used. Arguments: the number; the time in microseconds.
-- flags: allow-oom
if tonumber(redis.call('HGET', KEYS[1], '*') or 0) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], '*', ARGV[1])
end
if tonumber(redis.call('HGET', KEYS[2], 'last_us') or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[2], 'last_us', ARGV[2])
end
return redis.status_reply('OK')
