-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Arguments: how many at most.
-- Result: how many were promoted.
-- Refusals: none; what is not due stays.
-- flags: allow-oom
-- include: outcomes

local function promote_one(id)
  local job = load(id)
  if not job then return 0 end
  if job[STATE] ~= 'delayed' then return 0 end -- guard: state
  lead('promote', id, job, 'pending')
  return 1
end

local function promote(limit)
  local moved, due, till = 0, {}, '+inf'
  till = int(now) -- guard: due
  for i, entry in ipairs(redis.call('ZRANGE', DELAYED, '-inf', till, 'BYSCORE', 'LIMIT', 0, limit)) do
    due[i] = string.match(entry, ' (.+)$')
  end
  look_up(due)
  for _, id in ipairs(due) do moved = moved + promote_one(id) end
  return moved
end

-- main
local moved = promote(tonumber(ARGV[1]))
if moved > 0 then ring_for('pending') end
return finish(moved)
