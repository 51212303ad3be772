-- Make the queue's metadata if it is new.
-- Arguments: the number, the test kit's offset in milliseconds.
-- include: keys
if redis.call('EXISTS', META) == 0 then
  redis.call('HSET', META, 'number', ARGV[1], 'offset_ms', ARGV[2], 'seq', 0, 'last_us', 0)
end
return redis.status_reply('OK')
