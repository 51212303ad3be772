-- include: shared/writes
-- Keys that take turns. A key's lane has its counts, its turn and its rule; codec/lanes.py says what each field is.
local virtual, joined = tonumber(meta[META_VIRTUAL] or 0), tonumber(meta[META_JOINED] or 0)
local lane_count = tonumber(meta[META_LANES] or 0)
local lanes, touched, is_touched = {}, {}, {}

-- Nothing for a lane that somebody has damaged: a repair puts its key's jobs into a new one.
local function read_lane(packed)
  local is_read, lane = pcall(decode, packed)
  if is_read and type(lane) == 'table' and type(lane[LANE_WEIGHT]) == 'number' then return lane end
end

local function lane_of(key)
  local lane = lanes[key]
  if not lane then
    local packed = redis.call('HGET', LANES, key)
    lane = packed and read_lane(packed)
    if not lane then
      lane_count = lane_count + 1
      meta_updates.lanes = lane_count
      lane = new_lane(lane_count)
    end
    lanes[key] = lane
  end
  return lane
end

-- The list that a pending job stands in: its key's, or its tier's.
local function line_of(key, priority)
  if has_keys then return 'k' .. int(lane_of(key)[LANE_NUMBER]) end
  return priority
end

-- Look at the key again when the call is done.
local function touch(key)
  if has_keys and key and not is_touched[key] then
    is_touched[key] = true
    touched[#touched + 1] = key
  end
end

local function interval_us(rate) return math.ceil((rate.per_ms or RATE_PER_MS) * 1000 / rate.count) end

-- When the next would be on time, from now on; a time that no rate brings about is one that the clock was set back from.
local function arrival_from(rate, arrival_us)
  if arrival_us > now_us + (rate.burst or 1) * interval_us(rate) + CLOCK_STEP_US then return now_us end
  return math.max(arrival_us, now_us)
end

-- How many may go now by a rate; `arrival_us` is when the next would be on time.
local function tokens_of(rate, arrival_us)
  local each = interval_us(rate)
  local room = ((rate.burst or 1) - 1) * each - (arrival_from(rate, arrival_us) - now_us)
  return room < 0 and 0 or math.floor(room / each) + 1
end

local function arrival_after(rate, arrival_us, taken)
  return arrival_from(rate, arrival_us) + taken * interval_us(rate)
end

-- What another rate left behind counts no further than this one could have come.
local function owed_at_most(rate, arrival_us)
  if not rate then return 0 end
  return math.min(arrival_us, now_us + (rate.burst or 1) * interval_us(rate))
end

-- The first millisecond in which the next may go.
local function opens_at(rate, arrival_us)
  return math.ceil((arrival_us - ((rate.burst or 1) - 1) * interval_us(rate)) / 1000)
end

local function could_run(lane)
  local limit = declared.mode == 'dynamic' and lane[LANE_LIMIT] or declared.key_limit or 1
  return lane[LANE_WAITING] > 0 and lane[LANE_RUNNING] < limit
end

local function held_until(lane)
  local rate = declared.key_rate
  if not rate or tokens_of(rate, lane[LANE_ARRIVAL_US]) > 0 then return false end
  return opens_at(rate, lane[LANE_ARRIVAL_US])
end

local function member_of(key, lane) return string.format('%016d ', lane[LANE_JOINED]) .. key end

local function key_of(member) return string.sub(member, 18) end

local function close(key, lane)
  if not lane[LANE_TURN] then return end
  redis.call('ZREM', lane[LANE_HELD_UNTIL] and HELD or READY, member_of(key, lane))
  lane[LANE_TURN], lane[LANE_HELD_UNTIL] = false, false
end

-- Stand behind the others at this turn.
local function stand(key, lane, turn, held)
  close(key, lane)
  joined = joined + 1
  meta_updates.joined = joined
  lane[LANE_TURN], lane[LANE_JOINED], lane[LANE_HELD_UNTIL] = turn, joined, held
  redis.call('ZADD', held and HELD or READY, held or turn, member_of(key, lane))
end

local function join(key, lane, held) stand(key, lane, virtual + math.floor(LANE_STRIDE / lane[LANE_WEIGHT]), held) end

-- A lane is open exactly while the key could be served.
local function refresh(key)
  local lane = lane_of(key)
  if not could_run(lane) then
    close(key, lane)
  elseif not lane[LANE_TURN] then
    join(key, lane, held_until(lane))
  end
end

local function refresh_touched()
  local keys = touched
  touched, is_touched = {}, {}
  for _, key in ipairs(keys) do refresh(key) end
end

-- The key's job was claimed: its turn is used, and a token of its rate.
local function serve(key, lane)
  virtual = lane[LANE_TURN]
  meta_updates.virtual = virtual
  local rate = declared.key_rate
  if rate then lane[LANE_ARRIVAL_US] = arrival_after(rate, lane[LANE_ARRIVAL_US], 1) end
  if could_run(lane) then
    stand(key, lane, lane[LANE_TURN] + math.floor(LANE_STRIDE / lane[LANE_WEIGHT]), held_until(lane))
  else
    close(key, lane)
  end
end

local function release_held_between(first, last, limit)
  for _, member in ipairs(redis.call('ZRANGE', HELD, first, last, 'BYSCORE', 'LIMIT', 0, limit)) do
    local key = key_of(member)
    join(key, lane_of(key), false)
  end
end

-- Let keys go on whose rate held them back until now, or by a time that the clock was set back from.
local function release_held(limit)
  release_held_between('-inf', int(now), limit)
  local rate = declared.key_rate
  if is_stepped and rate then
    release_held_between(int(now + math.ceil(interval_us(rate) / 1000) + CLOCK_STEP_MS + 1), '+inf', limit)
  end
end

-- Where nobody waits, only entries of jobs that are gone can stand.
local function clear_line(lane)
  local line = 'k' .. int(lane[LANE_NUMBER])
  redis.call('UNLINK', PENDING .. line, GONE .. line)
  pushed[PENDING .. line], pushed_front[PENDING .. line], added[GONE .. line] = nil, nil, nil
end

-- A lane without jobs and rule is forgotten once its rate has nothing more to say about it.
local function write_lanes()
  for key, lane in pairs(lanes) do
    if lane[LANE_WAITING] == 0 and lane[LANE_RUNNING] == 0 then clear_line(lane) end
    if lane[LANE_WAITING] > 0 or lane[LANE_RUNNING] > 0 or lane[LANE_LIMIT] or lane[LANE_WEIGHT] ~= 1 then
      gather(set, LANES, key, encode(lane))
    elseif lane[LANE_ARRIVAL_US] > now_us then
      gather(set, LANES, key, encode(lane))
      gather(added, COOLING, math.ceil(lane[LANE_ARRIVAL_US] / 1000), key)
    else
      gather(unset, LANES, key)
    end
  end
end

-- Other limits hold: look at every key again, some with each call until none is left.
local function refresh_some(limit)
  local answer = redis.call('HSCAN', LANES, meta[META_REFRESHING] or '0', 'COUNT', limit)
  local keys = {}
  for at = 1, #answer[2], 2 do
    local key = answer[2][at]
    keys[#keys + 1] = key
    lane_of(key)[LANE_ARRIVAL_US] = owed_at_most(declared.key_rate, lane_of(key)[LANE_ARRIVAL_US])
    refresh(key)
  end
  table.sort(keys, function(a, b)
    local one, other = lanes[a], lanes[b]
    local since, than = one[LANE_HELD_UNTIL] or 0, other[LANE_HELD_UNTIL] or 0
    return since < than or (since == than and one[LANE_JOINED] < other[LANE_JOINED])
  end)
  for _, key in ipairs(keys) do
    local lane = lanes[key]
    local held = held_until(lane)
    if lane[LANE_TURN] and held ~= lane[LANE_HELD_UNTIL] then
      if held then
        redis.call('ZREM', lane[LANE_HELD_UNTIL] and HELD or READY, member_of(key, lane))
        redis.call('ZADD', HELD, held, member_of(key, lane))
        lane[LANE_HELD_UNTIL] = held
      else
        join(key, lane, false)
      end
    end
  end
  meta_updates.refreshing = answer[1] ~= '0' and answer[1] or ''
end
