-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Arguments: worker, how many at most, lease_ms, fresh tokens, how many to promote, to recover and to pass over at
--   most, the longest lease, the highest and the lowest tier; the floor of fences, and how far it may lie above the time.
-- Result: the jobs claimed, each as its id, record and payload; the leases that ran out, each as its id and record;
--   the time until something becomes due, or nil; 1 where keys take turns, else 0; 1 where this call could not look at
--   all it should have, else 0; the time in microseconds.
-- Refusals: none; a paused queue gives nothing.
-- flags: allow-oom
-- include: shared/packed

-- Lease the job to the worker; the record after it, or false where the job is not, or not any longer, pending at this place.
local function lease(id, place, worker, token, lease_ms, floor_us)
  local job = load_head(id, WORKER)
  if not job then return false end
  if job[STATE] ~= 'pending' then return false end -- guard: state
  -- The job left this place and came back at another one.
  if job[PLACE] ~= place then return false end
  job[STATE], job[VERSION], job[DELIVERY] = 'active', job[VERSION] + 1, job[DELIVERY] + 1
  job[FENCE] = math.min(math.max(job[FENCE] + 1, now_us, floor_us), HIGHEST_FENCE)
  job[TOKEN], job[DEADLINE], job[WORKER] = token, now + lease_ms, worker
  local record = save_leased(id, job, lease_ms)
  gather(added, ACTIVE, score(job[DEADLINE]), id)
  start(job[KEY])
  touch(job[KEY])
  return record
end

local function is_paused()
  local ends = tonumber(meta[META_PAUSED_UNTIL] or nil)
  return meta[META_PAUSED_AT] and not (ends and ends <= now)
end

-- main
-- include: moves/promote
-- include: shared/expired

local worker, limit, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, promote_limit, recover_limit = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local pass_limit, lease_limit_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local highest, lowest = tonumber(ARGV[9]), tonumber(ARGV[10])
local floor_us = tonumber(ARGV[11])
if floor_us > now_us + tonumber(ARGV[12]) then floor_us = 0 end
local paused = is_paused()
local arrival_us = tonumber(meta[META_ARRIVAL_US] or 0)
local TOKEN_LENGTH = 32

local taken, ids, passed = {}, {}, 0
local serving -- the lane whose list is looked at

local function claim(id, place)
  local nth = #ids * TOKEN_LENGTH
  local record = lease(id, place, worker, string.sub(tokens, nth + 1, nth + TOKEN_LENGTH), lease_ms, floor_us)
  if not record then return false end
  ids[#ids + 1] = id
  taken[#taken + 1], taken[#taken + 2] = id, record
  return true
end

-- An entry of a job that is gone has a note; without one, somebody has taken the record away.
local function drop_pending(line, id, place)
  local at = int(tonumber(place) or 0)
  if redis.call('ZCOUNT', GONE .. line, at, at) > 0 then return end
  set_aside(id, 'an entry among the pending without a record')
  if has_keys then serving[LANE_WAITING] = serving[LANE_WAITING] - 1 end
end

local function claim_entry(line, entry, id, place)
  if claim(id, tonumber(place)) then return true end
  if not load(id) then drop_pending(line, id, place) end
  gather(removed, GONE .. line, entry)
  passed = passed + 1
  return false
end

-- How many may be claimed now by the queue's own limits.
local function allowance()
  local allowed = limit
  if declared.max_active then allowed = math.min(allowed, declared.max_active - redis.call('ZCARD', ACTIVE)) end
  if declared.rate then allowed = math.min(allowed, tokens_of(declared.rate, arrival_us)) end
  return allowed
end

local function take_by_tier(allowed)
  for tier = highest, lowest, -1 do
    local list, seen = PENDING .. tier, 0
    while #ids < allowed and passed < pass_limit do
      local entries = redis.call('LRANGE', list, seen, seen + math.min(allowed - #ids, pass_limit - passed) - 1)
      if #entries == 0 then break end
      seen = seen + #entries
      local places, next_ids = {}, {}
      for i = 1, #entries do places[i], next_ids[i] = parted(entries[i]) end
      look_up(next_ids)
      for i = 1, #entries do claim_entry(tier, entries[i], next_ids[i], places[i]) end
    end
    if seen > 0 then popped[list] = seen end
  end
end

local function take_by_key(allowed)
  while #ids < allowed and passed < pass_limit do
    local first = redis.call('ZRANGE', READY, 0, 0)[1]
    if not first then return end
    local key = key_of(first)
    local lane = lane_of(key)
    local line = line_of(key)
    local seen = popped[PENDING .. line] or 0
    local entry = could_run(lane) and redis.call('LINDEX', PENDING .. line, seen)
    if entry then
      popped[PENDING .. line] = seen + 1
      local place, id = parted(entry)
      serving = lane
      if claim_entry(line, entry, id, place) then serve(key, lane) end
    else
      -- Also where the lane knows nothing of it: the loop has to come to an end.
      redis.call('ZREM', READY, first)
      lane[LANE_TURN], lane[LANE_HELD_UNTIL] = false, false
    end
  end
end

local function take()
  if paused then return end -- guard: open
  local allowed = allowance()
  if has_keys then take_by_key(allowed) else take_by_tier(allowed) end
  if declared.rate and #ids > 0 then
    arrival_us = arrival_after(declared.rate, arrival_us, #ids)
    meta_updates.arrival_us = arrival_us
  end
end

-- With their payloads.
local function handed_out()
  if #ids == 0 then return {} end
  local payloads, out = redis.call('HMGET', PAYLOADS, unpack(ids)), {}
  for i in ipairs(ids) do
    out[3 * i - 2], out[3 * i - 1], out[3 * i] = taken[2 * i - 1], taken[2 * i], payloads[i]
  end
  return out
end

local function anyone_waits()
  return live_before() > redis.call('ZCARD', ACTIVE) + redis.call('ZCARD', DELAYED) + redis.call('ZCARD', BLOCKED)
end

-- The time until the first of what is delayed, leased, paused or held back by a rate becomes due. Comes after
-- everything else was written.
local function time_to_wait()
  local due = paused and tonumber(meta[META_PAUSED_UNTIL] or nil) or math.huge
  for _, index in ipairs({DELAYED, ACTIVE, HELD}) do
    local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
    if first[2] then due = math.min(due, tonumber(first[2])) end
  end
  if declared.rate and tokens_of(declared.rate, arrival_us) == 0 and anyone_waits() then
    due = math.min(due, opens_at(declared.rate, arrival_us))
  end
  return due < math.huge and math.max(0, due - now)
end

local promoted = promote(promote_limit)
-- What was promoted is to be found in its list, and its key among those that are ready.
if promoted > 0 then write_all() end
refresh_touched()
if meta[META_REFRESHING] and meta[META_REFRESHING] ~= '' then refresh_some(promote_limit) end
if has_keys then release_held(promote_limit) end
take()
-- The others have to hear of what this worker left.
if promoted > #ids then notify_for('pending') end
local expired = expired_leases(recover_limit, lease_limit_ms)
local is_more = passed >= pass_limit or (meta_updates.refreshing or '') ~= ''
local out = {handed_out(), expired, false, has_keys and 1 or 0, is_more and 1 or 0, int(now_us)}
finish()
out[3] = time_to_wait()
return out
