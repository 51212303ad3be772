-- Make the queue's metadata if it is new.
-- Arguments: the number, the test kit's offset in milliseconds, a mark that no other making has, its declaration as
--   it is known or nothing, the newest time that a deleted queue of the tenant used.
-- flags: allow-oom
redis.call('HSETNX', META, 'offset_ms', ARGV[2])
redis.call('HSETNX', META, 'last_us', ARGV[5])
redis.call('HSETNX', META, 'seq', 0)
if redis.call('HSETNX', META, 'made', ARGV[3]) == 1 and ARGV[4] ~= '' then
  redis.call('HSETNX', META, 'declared', ARGV[4])
end
-- Scripts take a queue without a number for one that is not open.
redis.call('HSETNX', META, 'number', ARGV[1])
return redis.status_reply('OK')
