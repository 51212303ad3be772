-- Keep the place of a reader of the events, or forget the readers whose lease is over.
-- Arguments: keep, the reader's name, its cursor, for how long; or forget.
-- Result: until when it is kept; or how many were forgotten.
-- flags: allow-oom
-- include: shared/meta
if ARGV[1] == 'keep' then
  local kept_until = int(now + ARGV[4])
  redis.call('HSET', READERS, ARGV[2], kept_until .. ' ' .. ARGV[3])
  return kept_until
end
local forgotten = 0
local readers = redis.call('HGETALL', READERS)
for i = 1, #readers, 2 do
  if tonumber(string.match(readers[i + 1], '^%d+')) <= now then
    forgotten = forgotten + redis.call('HDEL', READERS, readers[i])
  end
end
return forgotten
