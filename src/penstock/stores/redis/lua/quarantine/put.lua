-- Set aside what a client has found damaged, each unless it has changed since.
-- Arguments: 1 to count anew what keys have waiting and running and to give them new turns, else 0; then of each: `record`
--   or the index where an entry without its job stands (jobs, blocked, delayed, active, prunable, an ended state, or pending: and its line); the
--   entry; the id; what was found; the SHA-1 of the record, or nothing for an entry. Or `index` for a job that is missing
--   in one, with its place instead of the entry; or `key` for an idempotency key of a job that is gone.
-- Result: how many were set aside or dropped.
-- flags: allow-oom
-- include: shared/outcomes

local INDEXES = {jobs = JOBS, blocked = BLOCKED, delayed = DELAYED, active = ACTIVE, prunable = PRUNABLE}
local WIDTH = 5 -- values for each
local changes = 0

local function backs(job, index, entry, id)
  local state = job[STATE]
  if index == 'jobs' then return true end
  if index == 'prunable' then return ENDS[state] and state ~= 'dead' end
  if index == 'delayed' then return state == index and delayed_entry(id, job[PLACE]) == entry end
  return state == index
end

local function drop(index, entry, id, what)
  local line = string.match(index, '^pending:(.+)$')
  local job = load(id)
  if line and job or not line and job and backs(job, index, entry, id) then return end
  if not job then set_aside(id, what) end
  if line then
    local place = parted(entry)
    gather(added, GONE .. line, int(tonumber(place) or 0), entry)
  else
    gather(removed, INDEXES[index] or ENDED .. index, entry)
  end
  changes = changes + 1
end

-- Put a job back into all indexes of its state.
local function put_back(place, id)
  local job = load(id)
  if not job or job[PLACE] ~= tonumber(place) then return end
  local waiting = waiting_here
  gather(added, JOBS, job[ENQUEUED_AT], id)
  if job[STATE] == 'delayed' then
    gather(added, DELAYED, job[VISIBLE_AT], delayed_entry(id, job[PLACE]))
  elseif job[STATE] == 'pending' then
    push(id, job[PRIORITY], job[KEY], job[PLACE])
    touch(job[KEY])
    notify_for('pending')
  elseif job[STATE] == 'active' then
    gather(added, ACTIVE, job[DEADLINE], id)
  else
    enter(id, job)
  end
  waiting_here, changes = waiting, changes + 1
end

-- Let go of an idempotency key whose job nobody knows any more.
local function free(key, id)
  local held = redis.call('HGET', HOLDERS, key)
  if not string.match(held or '', '^%S+ %S+$') or string.match(held, '^%S+') ~= id then return end
  if found(id) or redis.call('HGET', QUARANTINE, id) then return end
  gather(unset, HOLDERS, key)
  changes = changes + 1
end

local function put(kind, entry, id, what, digest)
  if kind == 'index' then return put_back(entry, id) end
  if kind == 'key' then return free(entry, id) end
  if kind ~= 'record' then return drop(kind, entry, id, what) end
  local record = packed_record(id)
  if not record or redis.sha1hex(record) ~= digest then return end
  set_aside(id, what, record)
  changes = changes + 1
end

-- A record that is lost does not say which key it was of, and a turn that is lost never comes: all keys take new ones.
local function count_keys()
  redis.call('UNLINK', READY, HELD)
  local running, ids = {}, redis.call('ZRANGE', ACTIVE, 0, -1)
  look_up(ids)
  for _, id in ipairs(ids) do
    local job = load(id)
    if job and job[KEY] then running[job[KEY]] = (running[job[KEY]] or 0) + 1 end
  end
  local all = redis.call('HGETALL', LANES)
  for at = 1, #all, 2 do
    local key = all[at]
    local lane = lane_of(key)
    local line = 'k' .. int(lane[LANE_NUMBER])
    lane[LANE_RUNNING] = running[key] or 0
    lane[LANE_WAITING] = math.max(0, redis.call('LLEN', PENDING .. line) - redis.call('ZCARD', GONE .. line))
    lane[LANE_TURN], lane[LANE_HELD_UNTIL] = false, false
    touch(key)
  end
end

for at = 2, #ARGV, WIDTH do put(unpack(ARGV, at, at + WIDTH - 1)) end
finish()
if has_keys and ARGV[1] == '1' then
  count_keys()
  notify_for('pending')
end
return finish(changes)
