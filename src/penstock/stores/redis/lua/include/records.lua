-- include: events
-- include: lanes
-- Records and the indexes they stand in.
local loaded, changed = {}, {} -- what this call made and has not looked at since is loaded packed

-- Fetch these records in one go, but for those that this call has already: they may have changed.
local function look_up(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if loaded[id] == nil then missing[#missing + 1] = id end
  end
  for first = 1, #missing, CHUNK do
    local last = math.min(first + CHUNK - 1, #missing)
    local packed = redis.call('HMGET', RECORDS, unpack(missing, first, last))
    for at = first, last do
      local record = packed[at - first + 1]
      loaded[missing[at]] = record and cmsgpack.unpack(record)
    end
  end
end

-- The record as this call left it; false if there is none.
local function load(id)
  local job = loaded[id]
  if job == nil then
    look_up({id})
    job = loaded[id]
  elseif type(job) == 'string' then
    job = cmsgpack.unpack(job)
    loaded[id] = job
  end
  return job
end

-- Pending jobs stand in one list per tier, or per key where keys take turns. What is cancelled or deleted is not
-- searched for there, which would take time with the length of the list: its entry stays, is noted in GONE, and the
-- claim drops it. An entry carries the place that the record had when it was made, so that an old one never stands
-- for a job that came back. Places grow towards the back; those at the front are negative.
local function pending_entry(id, place) return string.format('%d %s', place, id) end

-- The place breaks ties: members with equal scores sort by their bytes.
local function delayed_entry(id, place) return string.format('%016d %s', place, id) end

local waiting_here = 0 -- how many more wait by this call

-- To the end of its line, or to the front with a negative place.
local function push(id, priority, key, place)
  gather(place < 0 and led or pushed, PENDING .. line_of(key, priority), pending_entry(id, place))
  if has_keys then lane_of(key)[WAITING] = lane_of(key)[WAITING] + 1 end
  waiting_here = waiting_here + 1
end

-- Put a job where its state belongs; comes after the event, whose number its place is.
local function enter(id, job, front)
  local state = job[STATE]
  if state == 'pending' then
    job[PLACE] = front and -seq or seq
    push(id, job[PRIORITY], job[KEY], job[PLACE])
  elseif state == 'delayed' then
    job[PLACE] = seq
    gather(added, DELAYED, job[VISIBLE_AT], delayed_entry(id, seq))
  elseif state == 'active' then
    gather(added, ACTIVE, job[DEADLINE], id)
    if has_keys then lane_of(job[KEY])[RUNNING] = lane_of(job[KEY])[RUNNING] + 1 end
  elseif state == 'blocked' then
    gather(added, BLOCKED, now, id)
  else
    gather(added, ENDED .. state, job[ENDED_AT], id)
    if state ~= 'dead' then gather(added, PRUNABLE, job[ENDED_AT] + job[RETENTION_MS], id) end
  end
  if state == 'delayed' or state == 'blocked' then waiting_here = waiting_here + 1 end
end

-- Take a job out of where its state put it. A claim takes the entry off its list itself.
local function leave(id, job, is_taken)
  local state = job[STATE]
  if state == 'pending' then
    if has_keys then lane_of(job[KEY])[WAITING] = lane_of(job[KEY])[WAITING] - 1 end
    if not is_taken then
      gather(added, GONE .. line_of(job[KEY], job[PRIORITY]), job[PLACE], pending_entry(id, job[PLACE]))
    end
  elseif state == 'delayed' then
    gather(removed, DELAYED, delayed_entry(id, job[PLACE]))
  elseif state == 'active' then
    gather(removed, ACTIVE, id)
    if has_keys then lane_of(job[KEY])[RUNNING] = lane_of(job[KEY])[RUNNING] - 1 end
  elseif state == 'blocked' then
    gather(removed, BLOCKED, id)
  else
    gather(removed, ENDED .. state, id)
    gather(removed, PRUNABLE, id)
  end
  if state == 'pending' or state == 'delayed' or state == 'blocked' then waiting_here = waiting_here - 1 end
end

-- Lead a job to `state` by a move, with its event. Other fields of the record are set before.
local function lead(move, id, job, state, front)
  local source = job[STATE]
  leave(id, job, move == 'claim')
  job[STATE], job[VERSION] = state, job[VERSION] + 1
  if state ~= 'delayed' then job[VISIBLE_AT] = false end
  if state ~= 'active' then job[TOKEN], job[DEADLINE] = false, false end
  append_of(move, id, job, source)
  enter(id, job, front)
  changed[id] = job
  touch(job[KEY])
end

-- How many jobs have not ended, as the call found it.
local function live_before()
  local live = redis.call('HLEN', RECORDS)
  for _, state in ipairs({'completed', 'failed', 'dead', 'cancelled'}) do
    live = live - redis.call('ZCARD', ENDED .. state)
  end
  return live
end

local waiting_before

-- How many more jobs may wait.
local function room()
  if not declared.max_length then return math.huge end
  waiting_before = waiting_before or live_before() - redis.call('ZCARD', ACTIVE)
  return declared.max_length - waiting_before - waiting_here
end
