-- include: keys
-- What the queue knows of itself, and its clock: the server's time and the test kit's offset. A clock that went back
-- behind the last move is waited out; one that went back by more than a minute was set, and is followed.
local STEP_MS = 60000
local meta = redis.call(
  'HMGET', META, 'number', 'seq', 'last_us', 'offset_ms', 'paused_at', 'paused_until', 'declared', 'arrival_us',
  'virtual', 'joined', 'lanes', 'relayed', 'refreshing', 'standing', 'handed', 'claimant', 'step_at',
  'step_back_ms'
)
if not meta[1] then return redis.error_reply('NOQUEUE the queue is not open') end
local seq, declared = tonumber(meta[2]), meta[7] and cjson.decode(meta[7]) or {}
local clock = redis.call('TIME')
local now_us, last_us = clock[1] * 1000000 + clock[2] + meta[4] * 1000, tonumber(meta[3])
if now_us < last_us and last_us - now_us <= STEP_MS * 1000 then now_us = last_us end
local now = math.floor(now_us / 1000)
-- The newest time that the queue used. Only while the clock has not reached it again can a time be one from before a step.
local newest_ms = math.max(math.floor(last_us / 1000), (meta[17] or 0) + (meta[18] or 0))
local is_stepped = newest_ms > now + STEP_MS

-- Numbers become text here and nowhere else: `..` would write a fence as 1.79e+15.
local function int(n) return string.format('%d', n) end
