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
  local moved, due = 0, {}
  local entries = redis.call('ZRANGE', DELAYED, 0, limit - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    if tonumber(entries[i + 1]) > now then break end -- guard: due
    due[#due + 1] = string.match(entries[i], ' (.+)$')
  end
  look_up(due)
  for _, id in ipairs(due) do moved = moved + promote_one(id) end
  return moved
end

-- main
local moved = promote(tonumber(ARGV[1]))
if moved > 0 then ring_for('pending') end
return finish(moved)
