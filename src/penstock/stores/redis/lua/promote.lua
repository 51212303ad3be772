-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Arguments: how many at most.
-- Result: how many were promoted.
-- Refusals: none; what is not due stays.
-- flags: allow-oom
-- include: outcomes

local WAITING = {'state', 'version', 'drive', 'task', 'key', 'priority'}

local function promote_one(id)
  local job = load(id, WAITING)
  if not job then return 0 end
  if job.state ~= 'delayed' then return 0 end -- guard: state
  job.version = job.version + 1
  append_of('promote', id, job, 'delayed', 'pending')
  local place = enter(id, job, 'pending')
  write(id, {state = 'pending', version = job.version, place = place, visible_at = false})
  return 1
end

local function promote(limit)
  local moved = 0
  local entries = redis.call('ZRANGE', DELAYED, 0, limit - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    if tonumber(entries[i + 1]) > now then break end -- guard: due
    redis.call('ZREM', DELAYED, entries[i])
    moved = moved + promote_one(string.match(entries[i], ' (.+)$'))
  end
  return moved
end

-- main
local moved = promote(tonumber(ARGV[1]))
if moved > 0 then ring_for('pending') end
return finish(moved)
