-- include: keys
-- What the queue knows of itself, and its clock: the server's time and the test kit's offset. A clock that went back
-- behind the last move is waited out; one that went back by more than a minute was set, and is followed.
local HELD_BACK_US = 60000000
local meta = redis.call(
  'HMGET', META, 'number', 'seq', 'last_us', 'offset_ms', 'paused_at', 'paused_until', 'declared', 'arrival_us',
  'virtual', 'joined', 'lanes', 'relayed', 'refreshing', 'standing', 'handed', 'claimant'
)
if not meta[1] then return redis.error_reply('NOQUEUE the queue is not open') end
local seq, declared = tonumber(meta[2]), meta[7] and cjson.decode(meta[7]) or {}
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2] + meta[4] * 1000
if now_us < tonumber(meta[3]) and tonumber(meta[3]) - now_us < HELD_BACK_US then now_us = tonumber(meta[3]) end
local now = math.floor(now_us / 1000)

-- Numbers become text here and nowhere else: `..` would write a fence as 1.79e+15.
local function int(n) return string.format('%d', n) end
