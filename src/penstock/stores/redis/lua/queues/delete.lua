-- Delete a queue that has no job, no schedule and no relay entry for another queue.
-- Arguments: the mark of its making, so that no other queue of this name is deleted in its place; the lowest tier and the
--   highest.
-- Result: deleted or kept; the numbers of schedules and relay entries; then, per state in which there are jobs, the state
--   and how many.
-- Refusals: changed, where another queue of this name stands there.
-- flags: allow-oom
-- include: shared/meta
if (redis.call('HGET', META, 'made') or '') ~= ARGV[1] then return {'changed'} end
local left = redis.call('HLEN', RECORDS)
local found = {'kept', redis.call('HLEN', SCHEDULES), redis.call('XLEN', RELAYS)}

local function count(state, many)
  left = left - many
  if many > 0 then
    found[#found + 1] = state
    found[#found + 1] = many
  end
end

for _, state in ipairs({'completed', 'failed', 'dead', 'cancelled'}) do
  count(state, redis.call('ZCARD', ENDED .. state))
end
count('blocked', redis.call('ZCARD', BLOCKED))
count('delayed', redis.call('ZCARD', DELAYED))
count('active', redis.call('ZCARD', ACTIVE))
count('pending', left)
if #found > 3 or found[2] > 0 or found[3] > 0 then return found end

-- Lists of keys go with their last job. In those of the tiers entries of jobs that are gone may stand.
for tier = ARGV[2], ARGV[3] do redis.call('UNLINK', PENDING .. tier, GONE .. tier) end
for _, state in ipairs({'completed', 'failed', 'dead', 'cancelled'}) do redis.call('UNLINK', ENDED .. state) end
redis.call('UNLINK', unpack(KEYS, 1, OWN_KEYS))
found[1] = 'deleted'
return found
