-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Arguments: how many jobs, and how many keys, at most.
-- Result: how many jobs were pruned.
-- Refusals: none; what is to be kept stays.
-- flags: allow-oom
-- include: removal

local limit = tonumber(ARGV[1])
local MAY_GO = {completed = true, failed = true, cancelled = true}
local pruned = {}

-- False at the first job that is to be kept: those after it end later.
local function prune(id)
  local job = load(id, REMOVED)
  if not job or not MAY_GO[job.state] then return redis.call('ZREM', PRUNABLE, id) end -- guard: state
  if job.ended_at + job.retention_ms > now then return false end -- guard: kept
  remove(id, job)
  pruned[#pruned + 1] = {id = id, ended_at = job.ended_at}
  return true
end

for _, id in ipairs(redis.call('ZRANGE', PRUNABLE, 0, limit - 1)) do
  if not prune(id) then break end
end
if #pruned > 0 then
  -- Retention may differ from job to job; the event names them by their ending.
  table.sort(pruned, function(a, b)
    return a.ended_at < b.ended_at or (a.ended_at == b.ended_at and a.id < b.id)
  end)
  local ids = {}
  for i, each in ipairs(pruned) do ids[i] = each.id end
  append('prune', {jobs = ids})
end

for _, key in ipairs(redis.call('ZRANGE', FREED, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit)) do
  redis.call('ZREM', FREED, key)
  redis.call('HDEL', HOLDERS, key)
end
return finish(#pruned)
