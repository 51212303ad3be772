-- Set the clock's offset. Turned back, the clock may show times that it showed before.
-- Arguments: the offset in milliseconds, 1 when it was turned back.
-- flags: allow-oom
-- include: keys
if redis.call('EXISTS', META) == 1 then
  redis.call('HSET', META, 'offset_ms', ARGV[1])
  if ARGV[2] == '1' then redis.call('HSET', META, 'last_us', 0) end
  redis.call('PUBLISH', BELL .. 'ready', '')
  redis.call('PUBLISH', BELL .. 'ended', '')
end
return redis.status_reply('OK')
