-- include: shared/meta
-- All that scripts pack and unpack, in the general form: arrays whose fields have the names of codec/names.py, with false
-- for None. New fields come at the end of an array: scripts of another version carry along what they do not know.

local encode = cmsgpack.pack
local decode = cmsgpack.unpack

-- Records

local ENDS = {completed = true, failed = true, dead = true, cancelled = true}

-- Raises an error where one of these is no number. Called by pcall for every job: sums are the fastest way to find out.
local function sum(a, b, c, d, e, f, g) return a + b + c + d + e + f + g end

-- The values of a record. It raises an error where they are not those of a job, as sums do with what is no number.
local function decode_record(packed)
  local job = decode(packed)
  local state = job[STATE]
  local total = sum(job[VERSION], job[PLACE], job[PRIORITY], job[DRIVE], job[DELIVERY], job[ATTEMPTS], job[FENCE])
    + job[ENQUEUED_AT] + job[RETENTION_MS] + job[KEY_HELD_MS]
  if ENDS[state] then
    total = total + job[ENDED_AT]
  elseif state == 'active' then
    total = total + job[DEADLINE] + #job[TOKEN]
  elseif state == 'delayed' then
    total = total + job[VISIBLE_AT]
  elseif state ~= 'pending' and state ~= 'blocked' then
    error('it has no state')
  end
  local key, extra = job[KEY], job[EXTRA]
  if type(key) ~= 'string' and (key or has_keys and not ENDS[state]) then error('it has no key') end
  if extra and type(extra) ~= 'table' then error('its extra is no table') end
  return job, total
end

-- A record of a job that waits for the first time, but for its place.
local function new_record(template, nonce, idempotency_key, key, extra)
  local job = {}
  for at = 1, EXTRA do job[at] = false end
  job[VERSION], job[PLACE], job[DRIVE], job[DELIVERY], job[ATTEMPTS], job[FENCE] = 1, 0, 1, 0, 0, 0
  job[TASK], job[PRIORITY], job[OPTIONS] = template[TEMPLATE_TASK], template[TEMPLATE_PRIORITY], template[TEMPLATE_OPTIONS]
  job[RETENTION_MS], job[KEY_HELD_MS] = template[TEMPLATE_RETENTION_MS], template[TEMPLATE_KEY_HELD_MS]
  job[ENQUEUED_AT], job[NONCE] = now, nonce
  job[IDEMPOTENCY_KEY], job[KEY], job[EXTRA] = idempotency_key or false, key or false, extra or false
  return job
end

-- Its state alone, the first value of a record; nil where that cannot be read.
local function decode_state(packed)
  local is_sound, _, state = pcall(cmsgpack.unpack_one, packed, 3)
  if is_sound and type(state) == 'string' then return state end
end

-- What is known of a record that cannot be read as a whole: its state, place and key.
local function decode_remains(packed)
  local is_sound, _, state, _, place, _, _, key = pcall(cmsgpack.unpack_limit, packed, KEY, 3)
  if is_sound then return state, place, key end
end

-- Events: cut after the last value. What every event of the queue shares is left to the reader.

local function new_event(move)
  return {[EVENT_V] = THIS_EVENT_VERSION, [EVENT_MOVE] = move, [EVENT_AT] = now}
end

local function encode_event(event)
  local last = LAST_OF_EVENT
  while event[last] == nil do last = last - 1 end
  for at = 1, last do
    if event[at] == nil then event[at] = false end
  end
  return encode(event)
end

-- Lanes, children and schedules: see lanes.lua, unblock.lua and the scripts of schedules.

local function new_lane(number)
  local lane = {}
  lane[LANE_NUMBER], lane[LANE_WAITING], lane[LANE_RUNNING], lane[LANE_TURN], lane[LANE_JOINED] = number, 0, 0, false, 0
  lane[LANE_HELD_UNTIL], lane[LANE_ARRIVAL_US], lane[LANE_LIMIT], lane[LANE_WEIGHT] = false, 0, false, 1
  return lane
end

local function encode_child(number, is_done, state)
  local child = {}
  child[CHILD_NUMBER], child[CHILD_IS_DONE], child[CHILD_STATE] = number, is_done, state
  return encode(child)
end

-- The packed part of a schedule; of one that somebody has damaged, that nothing is due.
local function decode_schedule(packed)
  local is_read, schedule = pcall(decode, packed)
  if is_read and type(schedule) == 'table' and schedule[SCHEDULE_PAUSED] ~= nil then return schedule end
  return {false, false, false}
end

local function encode_schedule(next_at, last_at, paused)
  local schedule = {}
  schedule[SCHEDULE_NEXT_AT], schedule[SCHEDULE_LAST_AT], schedule[SCHEDULE_PAUSED] = next_at, last_at, paused
  return encode(schedule)
end
