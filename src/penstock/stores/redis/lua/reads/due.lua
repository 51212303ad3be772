-- What upkeep has to know of a queue: the first entry of each index. Run for many queues at a time, so it gets one key and
-- completes the others.
-- Keys: the queue's metadata. Arguments: the number of events that may be kept; the longest lease.
-- Result: now; when the first delayed job may be claimed; the first deadline; 1 where a lease
--   has ended because the clock was set back, else 0; the first instant of a schedule;
--   1 where relays wait, else 0; when the first of what is kept for a time need not be; how many events there are. What
--   there is none of is an empty text; of events it is 0 while there cannot be too many. Nothing for an idle queue, and
--   where there is none.
-- flags: allow-oom,no-writes
local events_kept, lease_limit_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local number, seq, offset_ms, last_us, step_at, step_back_ms = unpack(
  redis.call('HMGET', META, 'number', 'seq', 'offset_ms', 'last_us', 'step_at', 'step_back_ms'), 1, 6
)
if not number then return {} end
local start, has_many = string.sub(META, 1, -5), tonumber(seq) > events_kept
-- Most queues are idle, and this is all that they cost.
if not has_many and redis.call(
  'EXISTS', start .. 'delayed', start .. 'active', start .. 'due', start .. 'relays', start .. 'prunable', start .. 'freed',
  start .. 'windows', start .. 'cooling'
) == 0 then return {} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) + offset_ms

-- While the clock has not reached again the newest time that the queue used; as in shared/expired.lua.
local function has_far_lease()
  local newest_ms = math.max(math.floor(last_us / 1000), (step_at or 0) + (step_back_ms or 0))
  if newest_ms <= now + CLOCK_STEP_MS then return 0 end
  local first = string.format('(%d', now + CLOCK_STEP_MS)
  local far = redis.call('ZRANGE', start .. 'active', first, '+inf', 'BYSCORE', 'WITHSCORES')
  for i = 1, #far, 2 do
    local record = redis.call('HGET', start .. 'records', far[i])
    local job = record and cmsgpack.unpack(record)
    if job and tonumber(far[i + 1]) > now + (job[LEASE_MS] or lease_limit_ms) + CLOCK_STEP_MS then return 1 end
  end
  return 0
end

local function score(index, rank)
  return redis.call('ZRANGE', start .. index, rank, rank, 'WITHSCORES')[2] or ''
end

local function earlier(one, other)
  if one == '' or (other ~= '' and tonumber(other) < tonumber(one)) then return other end
  return one
end

local prune_at = earlier(score('prunable', 0), score('freed', 0))
prune_at = earlier(prune_at, earlier(score('windows', 0), score('cooling', 0)))
local events = 0
if has_many then
  local first = redis.call('XRANGE', start .. 'events', '-', '+', 'COUNT', 1)[1]
  if first then events = tonumber(seq) - tonumber(string.match(first[1], '^%d+')) + 1 end
end
return {
  string.format('%d', now), score('delayed', 0), score('active', 0), has_far_lease(), score('due', 0),
  redis.call('XLEN', start .. 'relays') > 0 and 1 or 0, prune_at, events
}
