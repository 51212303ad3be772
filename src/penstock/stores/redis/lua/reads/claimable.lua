-- What a worker of many queues has to know of one: whether something is to be claimed. Run for many queues at a time, so it
-- gets one key and completes the others.
-- Keys: the queue's metadata. Arguments: the highest tier and the lowest.
-- Result: now; 1 where a job waits that no limit of its key holds back, else 0; when the first delayed job may be claimed;
--   when the first key that its rate holds back goes on; 1 where the queue is paused, else 0; until when. What there is
--   none of is an empty text. Nothing for an idle queue, and where there is none.
-- flags: allow-oom,no-writes
local start, indexes = string.sub(META, 1, -5), {}
for tier = ARGV[1], ARGV[2], -1 do indexes[#indexes + 1] = start .. 'pending:' .. tier end
indexes[#indexes + 1] = start .. 'ready'
local pending = redis.call('EXISTS', unpack(indexes))
-- Most queues are idle, and this is all that they cost.
if pending == 0 and redis.call('EXISTS', start .. 'delayed', start .. 'held') == 0 then return {} end
local number, offset_ms, paused_at, paused_until = unpack(
  redis.call('HMGET', META, 'number', 'offset_ms', 'paused_at', 'paused_until'), 1, 4
)
if not number then return {} end
local clock = redis.call('TIME')
local now = string.format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000) + offset_ms)

local function score(index)
  return redis.call('ZRANGE', start .. index, 0, 0, 'WITHSCORES')[2] or ''
end

return {now, pending > 0 and 1 or 0, score('delayed'), score('held'), paused_at and 1 or 0, paused_until or ''}
