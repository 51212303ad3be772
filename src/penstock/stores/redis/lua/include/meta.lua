-- include: keys
-- What the queue knows of itself, and its clock: the server's time and the test kit's offset, never earlier than
-- the last move.
local meta = redis.call(
  'HMGET', META, 'number', 'seq', 'last_us', 'offset_ms', 'paused_at', 'paused_until', 'declared', 'arrival_us',
  'virtual', 'joined', 'lanes', 'relayed', 'refreshing'
)
if not meta[1] then return redis.error_reply('NOQUEUE the queue is not open') end
local seq, declared = tonumber(meta[2]), meta[7] and cjson.decode(meta[7]) or {}
local clock = redis.call('TIME')
local now_us = math.max(tonumber(meta[3]), clock[1] * 1000000 + clock[2] + meta[4] * 1000)
local now = math.floor(now_us / 1000)

-- Numbers become text here and nowhere else: `..` would write a fence as 1.79e+15.
local function int(n) return string.format('%d', n) end
