-- include: keys
-- The queue's clock: the server's time and the test kit's offset, never earlier than the last move.
local number, last_seq, last_us, offset_ms, paused_at, paused_until = unpack(
  redis.call('HMGET', META, 'number', 'seq', 'last_us', 'offset_ms', 'paused_at', 'paused_until')
)
if not number then return redis.error_reply('NOQUEUE the queue is not open') end
local clock = redis.call('TIME')
local now_us = math.max(tonumber(last_us), clock[1] * 1000000 + clock[2] + offset_ms * 1000)
local now = math.floor(now_us / 1000)

-- Numbers become text here and nowhere else: `..` would write a fence as 1.79e+15.
local function int(n) return string.format('%.0f', n) end
