-- include: writes
-- Keys that take turns. A lane is an array: its number, the key's waiting and running jobs, its turn or false while
-- it could not be served, its place among equal turns, until when its rate holds it back or false, when its next job
-- would be on time, and its rule's limit or false and weight.
local NUMBER, WAITING, RUNNING, TURN, JOINED, HELD_UNTIL, ARRIVAL_US, LIMIT, WEIGHT = 1, 2, 3, 4, 5, 6, 7, 8, 9
local STRIDE = 1000000
local has_keys = declared.mode == 'keyed' or declared.mode == 'dynamic'
local virtual, joined, lane_count = tonumber(meta[9] or 0), tonumber(meta[10] or 0), tonumber(meta[11] or 0)
local lanes, touched, is_touched = {}, {}, {}

local function lane_of(key)
  local lane = lanes[key]
  if not lane then
    local packed = redis.call('HGET', LANES, key)
    if packed then
      lane = cmsgpack.unpack(packed)
    else
      lane_count = lane_count + 1
      facts.lanes = lane_count
      lane = {lane_count, 0, 0, false, 0, false, 0, false, 1}
    end
    lanes[key] = lane
  end
  return lane
end

-- The list that a pending job stands in: its key's, or its tier's.
local function line_of(key, priority)
  if has_keys then return 'k' .. int(lane_of(key)[NUMBER]) end
  return priority
end

-- Look at the key again when the call is done.
local function touch(key)
  if has_keys and key and not is_touched[key] then
    is_touched[key] = true
    touched[#touched + 1] = key
  end
end

local function interval_us(rate) return math.ceil((rate.per_ms or 1000) * 1000 / rate.count) end

-- How many may go now by a rate; `arrival_us` is when the next would be on time.
local function tokens_of(rate, arrival_us)
  local each = interval_us(rate)
  local room = ((rate.burst or 1) - 1) * each - (math.max(arrival_us, now_us) - now_us)
  return room < 0 and 0 or math.floor(room / each) + 1
end

local function arrival_after(rate, arrival_us, taken)
  return math.max(arrival_us, now_us) + taken * interval_us(rate)
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
  local limit = declared.mode == 'dynamic' and lane[LIMIT] or declared.key_limit or 1
  return lane[WAITING] > 0 and lane[RUNNING] < limit
end

local function held_until(lane)
  local rate = declared.key_rate
  if not rate or tokens_of(rate, lane[ARRIVAL_US]) > 0 then return false end
  return opens_at(rate, lane[ARRIVAL_US])
end

local function member_of(key, lane) return string.format('%016d ', lane[JOINED]) .. key end

local function key_of(member) return string.sub(member, 18) end

local function close(key, lane)
  if not lane[TURN] then return end
  redis.call('ZREM', lane[HELD_UNTIL] and HELD or READY, member_of(key, lane))
  lane[TURN], lane[HELD_UNTIL] = false, false
end

-- Stand behind the others at this turn.
local function stand(key, lane, turn, held)
  close(key, lane)
  joined = joined + 1
  facts.joined = joined
  lane[TURN], lane[JOINED], lane[HELD_UNTIL] = turn, joined, held
  redis.call('ZADD', held and HELD or READY, held or turn, member_of(key, lane))
end

local function join(key, lane, held) stand(key, lane, virtual + math.floor(STRIDE / lane[WEIGHT]), held) end

-- A lane is open exactly while the key could be served.
local function refresh(key)
  local lane = lane_of(key)
  if not could_run(lane) then
    close(key, lane)
  elseif not lane[TURN] then
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
  virtual = lane[TURN]
  facts.virtual = virtual
  local rate = declared.key_rate
  if rate then lane[ARRIVAL_US] = arrival_after(rate, lane[ARRIVAL_US], 1) end
  if could_run(lane) then
    stand(key, lane, lane[TURN] + math.floor(STRIDE / lane[WEIGHT]), held_until(lane))
  else
    close(key, lane)
  end
end

-- Let keys go on whose rate held them back until now.
local function release_held(limit)
  for _, member in ipairs(redis.call('ZRANGE', HELD, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit)) do
    local key = key_of(member)
    join(key, lane_of(key), false)
  end
end

-- Where nobody waits, only entries of jobs that are gone can stand.
local function clear_line(lane)
  local line = 'k' .. int(lane[NUMBER])
  redis.call('UNLINK', PENDING .. line, GONE .. line)
  pushed[PENDING .. line], led[PENDING .. line], added[GONE .. line] = nil, nil, nil
end

-- A lane without jobs and rule is forgotten once its rate has nothing more to say about it.
local function write_lanes()
  for key, lane in pairs(lanes) do
    if lane[WAITING] == 0 and lane[RUNNING] == 0 then clear_line(lane) end
    if lane[WAITING] > 0 or lane[RUNNING] > 0 or lane[LIMIT] or lane[WEIGHT] ~= 1 then
      gather(set, LANES, key, cmsgpack.pack(lane))
    elseif lane[ARRIVAL_US] > now_us then
      gather(set, LANES, key, cmsgpack.pack(lane))
      gather(added, COOLING, math.ceil(lane[ARRIVAL_US] / 1000), key)
    else
      gather(unset, LANES, key)
    end
  end
end

-- Other limits hold: look at every key again, some with each call until none is left.
local function refresh_some(limit)
  local answer = redis.call('HSCAN', LANES, meta[13] or '0', 'COUNT', limit)
  local keys = {}
  for at = 1, #answer[2], 2 do
    local key = answer[2][at]
    keys[#keys + 1] = key
    lane_of(key)[ARRIVAL_US] = owed_at_most(declared.key_rate, lane_of(key)[ARRIVAL_US])
    refresh(key)
  end
  table.sort(keys, function(a, b)
    local one, other = lanes[a], lanes[b]
    local since, than = one[HELD_UNTIL] or 0, other[HELD_UNTIL] or 0
    return since < than or (since == than and one[JOINED] < other[JOINED])
  end)
  for _, key in ipairs(keys) do
    local lane = lanes[key]
    local held = held_until(lane)
    if lane[TURN] and held ~= lane[HELD_UNTIL] then
      if held then
        redis.call('ZREM', lane[HELD_UNTIL] and HELD or READY, member_of(key, lane))
        redis.call('ZADD', HELD, held, member_of(key, lane))
        lane[HELD_UNTIL] = held
      else
        join(key, lane, false)
      end
    end
  end
  facts.refreshing = answer[1] ~= '0' and answer[1] or ''
end
