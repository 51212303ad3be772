-- prune: completed / failed / cancelled → gone; after retention; its idempotency key stays until its time
-- Arguments: how many jobs, and how many of each kind of left-over, at most.
-- Result: how many jobs were pruned.
-- Refusals: none; what is to be kept stays.
-- flags: allow-oom
-- include: shared/removal

local limit = tonumber(ARGV[1])
local MAY_GO = {completed = true, failed = true, cancelled = true}
local pruned = {}

local function pass_over(id)
  gather(removed, PRUNABLE, id)
  return true
end

-- False at the first job that is to be kept: those after it go later.
local function prune(id)
  local job = load(id)
  if not job then
    set_aside(id, 'an entry among the prunable without a record')
    return pass_over(id)
  end
  if not MAY_GO[job[STATE]] then return pass_over(id) end -- guard: state
  if job[ENDED_AT] + job[RETENTION_MS] > now then return false end -- guard: kept
  remove(id, job)
  pruned[#pruned + 1] = {id = id, ended_at = job[ENDED_AT]}
  return true
end

-- What a sorted set holds up to now; it is taken off there, before jobs that go put others in.
local function due(index)
  local members = redis.call('ZRANGE', index, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit)
  for _, member in ipairs(members) do redis.call('ZREM', index, member) end
  return members
end

for _, key in ipairs(due(FREED)) do gather(unset, HOLDERS, key) end
for _, kind in ipairs(due(WINDOWS)) do
  local holder = load(string.match(redis.call('HGET', KINDS, kind) or '', '^%S*'))
  local unique = holder and holder[EXTRA] and holder[EXTRA].unique
  if not unique or unique[UNIQUE_KEY] ~= kind then gather(unset, KINDS, kind) end
end
-- Looked at, they are kept or forgotten as every lane is.
for _, key in ipairs(due(COOLING)) do lane_of(key) end

local ids = redis.call('ZRANGE', PRUNABLE, 0, limit - 1)
look_up(ids)
for _, id in ipairs(ids) do
  if not prune(id) then break end
end
if #pruned > 0 then
  -- Retention may differ from job to job; the event names them by their ending.
  table.sort(pruned, function(a, b)
    return a.ended_at < b.ended_at or (a.ended_at == b.ended_at and a.id < b.id)
  end)
  local gone = {}
  for i, each in ipairs(pruned) do gone[i] = each.id end
  append_removal('prune', false, gone)
end
return finish(#pruned)
