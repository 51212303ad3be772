-- What the queue knows of itself, and its clock: the server's time and the test kit's offset. A clock that went back
-- behind the last move is waited out; one that went back by more than a minute was set, and is followed.
local meta = redis.call('HMGET', META, META_FIELDS)
if not meta[META_NUMBER] then return redis.error_reply('NOQUEUE the queue is not open') end
local seq, declared = tonumber(meta[META_SEQ]), meta[META_DECLARED] and cjson.decode(meta[META_DECLARED]) or {}
local has_keys = declared.mode == 'keyed' or declared.mode == 'dynamic'
local clock = redis.call('TIME')
local now_us, last_us = clock[1] * 1000000 + clock[2] + meta[META_OFFSET_MS] * 1000, tonumber(meta[META_LAST_US])
if now_us < last_us and last_us - now_us <= CLOCK_STEP_US then now_us = last_us end
local now = math.floor(now_us / 1000)
-- The newest time that the queue used. Only while the clock has not reached it again can a time be one from before a step.
local newest_ms = math.max(math.floor(last_us / 1000), (meta[META_STEP_AT] or 0) + (meta[META_STEP_BACK_MS] or 0))
local is_stepped = newest_ms > now + CLOCK_STEP_MS

-- Numbers become text here and nowhere else: `..` would write a fence as 1.79e+15.
local function int(n) return string.format('%d', n) end
