-- promote: delayed → pending; visible_at must have come; in order of visible_at, then arrival; to the back
-- Arguments: how many at most.
-- Result: how many were promoted.
-- Refusals: none; what is not due stays.
-- flags: allow-oom
-- include: shared/outcomes

-- An entry that no record backs would come first for ever.
local function drop_delayed(id, entry)
  gather(removed, DELAYED, entry)
  if not found(id) then set_aside(id, 'an entry among the delayed without a record') end
  return 0
end

local function promote_one(id, entry)
  local job = load(id)
  if not job then return drop_delayed(id, entry) end
  if job[STATE] ~= 'delayed' then return drop_delayed(id, entry) end -- guard: state
  lead('promote', id, job, 'pending')
  return 1
end

local function promote(limit)
  local moved, due, till = 0, {}, '+inf'
  till = int(now) -- guard: due
  local entries = redis.call('ZRANGE', DELAYED, '-inf', till, 'BYSCORE', 'LIMIT', 0, limit)
  for i, entry in ipairs(entries) do due[i] = string.match(entry, ' (.+)$') or entry end
  look_up(due)
  for i, id in ipairs(due) do moved = moved + promote_one(id, entries[i]) end
  return moved
end

-- main
local moved = promote(tonumber(ARGV[1]))
if moved > 0 then notify_for('pending') end
return finish(moved)
