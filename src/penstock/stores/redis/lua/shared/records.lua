-- include: shared/events
-- include: shared/lanes
-- Records and the indexes they stand in.
local loaded, changed = {}, {} -- loaded as they are packed, until someone looks at them
-- include: shared/quarantine

-- Fetch these records in one go, but for those that this call has already: they may have changed.
local function look_up(ids)
  local missing, count = {}, 0
  for at = 1, #ids do
    local id = ids[at]
    if loaded[id] == nil then
      count = count + 1
      missing[count] = id
    end
  end
  for first = 1, count, COMMAND_VALUES do
    local last = math.min(first + COMMAND_VALUES - 1, count)
    local packed = redis.call('HMGET', RECORDS, unpack(missing, first, last))
    for at = first, last do loaded[missing[at]] = packed[at - first + 1] end
  end
end

local function found(id)
  if loaded[id] == nil then look_up({id}) end
  return loaded[id]
end

-- The record as this call left it; false if there is none, or none that can be read.
local function load(id)
  local job = found(id)
  if type(job) == 'string' then
    local is_sound, values = pcall(decode_record, job)
    if not is_sound then return set_aside(id, UNREADABLE, job) end
    job = values
    loaded[id] = job
  end
  return job
end

-- Its state alone, the first value of a record.
local function state_of(id)
  local job = found(id)
  if type(job) == 'string' then
    local state = decode_state(job)
    if state then return state end
    job = load(id)
  end
  return job and job[STATE]
end

-- The record, packed.
local function packed_record(id)
  local job = found(id)
  return type(job) == 'table' and encode(job) or job
end

-- Numbers as scores: the same few come again and again.
local scores = {}

local function score(n)
  local text = scores[n]
  if not text then
    text = int(n)
    scores[n] = text
  end
  return text
end

-- Pending jobs stand in one list per tier, or per key where keys take turns. What is cancelled or deleted is not
-- searched for there, which would take time with the length of the list: its entry stays, is noted in GONE, and the
-- claim drops it. An entry carries the place that the record had when it was made, so that an old one never stands
-- for a job that came back. Places grow towards the back; those at the front are negative.
local function pending_entry(id, place) return int(place) .. ' ' .. id end

-- The place and the id.
local function parted(entry)
  local space = string.find(entry, ' ', 1, true)
  if not space then return '', entry end
  return string.sub(entry, 1, space - 1), string.sub(entry, space + 1)
end

-- The place breaks ties: members with equal scores sort by their bytes.
local function delayed_entry(id, place) return string.format('%016d %s', place, id) end

local waiting_here = 0 -- how many more wait by this call

local lists = {} -- by their lines: to write a number into a name takes longer than to find it

local function list_of(key, priority)
  local line = line_of(key, priority)
  local list = lists[line]
  if not list then
    list = PENDING .. line
    lists[line] = list
  end
  return list
end

-- To the end of its line, or to the front with a negative place.
local function push(id, priority, key, place)
  gather(place < 0 and pushed_front or pushed, list_of(key, priority), pending_entry(id, place))
  if has_keys then lane_of(key)[LANE_WAITING] = lane_of(key)[LANE_WAITING] + 1 end
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
    if has_keys then lane_of(job[KEY])[LANE_RUNNING] = lane_of(job[KEY])[LANE_RUNNING] + 1 end
  elseif state == 'blocked' then
    gather(added, BLOCKED, now, id)
  else
    gather(added, ENDED .. state, job[ENDED_AT], id)
    if state ~= 'dead' then gather(added, PRUNABLE, job[ENDED_AT] + job[RETENTION_MS], id) end
  end
  if state == 'delayed' or state == 'blocked' then waiting_here = waiting_here + 1 end
end

-- Take a job out of where its state put it.
local function leave(id, job)
  local state = job[STATE]
  if state == 'pending' then
    if has_keys then lane_of(job[KEY])[LANE_WAITING] = lane_of(job[KEY])[LANE_WAITING] - 1 end
    gather(added, GONE .. line_of(job[KEY], job[PRIORITY]), job[PLACE], pending_entry(id, job[PLACE]))
  elseif state == 'delayed' then
    gather(removed, DELAYED, delayed_entry(id, job[PLACE]))
  elseif state == 'active' then
    gather(removed, ACTIVE, id)
    if has_keys then lane_of(job[KEY])[LANE_RUNNING] = lane_of(job[KEY])[LANE_RUNNING] - 1 end
  elseif state == 'blocked' then
    gather(removed, BLOCKED, id)
  else
    gather(removed, ENDED .. state, id)
    gather(removed, PRUNABLE, id)
  end
  if state == 'pending' or state == 'delayed' or state == 'blocked' then waiting_here = waiting_here - 1 end
end

-- A waiting job of the key began to run.
local function start(key)
  if has_keys then
    local lane = lane_of(key)
    lane[LANE_WAITING], lane[LANE_RUNNING] = lane[LANE_WAITING] - 1, lane[LANE_RUNNING] + 1
  end
  waiting_here = waiting_here - 1
end

-- A running job of the key ended.
local function stop(key)
  if has_keys then lane_of(key)[LANE_RUNNING] = lane_of(key)[LANE_RUNNING] - 1 end
end

-- Lead a job to `state` by a move, with its event. Other fields of the record are set before.
local function lead(move, id, job, state, front)
  local source, deadline = job[STATE], job[DEADLINE]
  leave(id, job)
  job[STATE], job[VERSION] = state, job[VERSION] + 1
  if state ~= 'delayed' then job[VISIBLE_AT] = false end
  if state ~= 'active' then
    job[TOKEN], job[DEADLINE] = false, false
    if #job > LEASE_MS then job[LEASE_MS] = false else job[LEASE_MS] = nil end
  end
  append_of(move, id, job, source, move == 'expire' and deadline or nil)
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
