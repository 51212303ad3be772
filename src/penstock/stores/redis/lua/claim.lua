-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Arguments: worker, how many at most, lease_ms, fresh tokens, how many to promote, to recover and to pass over at
--   most, the longest lease, the highest and the lowest tier; the floor of fences; the number of the claim whose job was
--   received, or nothing; how long this one may stand, its number, and the channel where its worker listens.
-- Result: the jobs claimed, each as its id, record and payload; the leases that ran out, each as its id and record;
--   the time until something becomes due, or nil; 1 where keys take turns, else 0; 1 where this call could not look at
--   all it should have, else 0; the time, if the claim stands; 1 where another worker was the last to claim jobs, else 0; the
--   time in microseconds.
-- Refusals: none; a paused queue gives nothing.
-- flags: allow-oom
-- include: outcomes

local claim_event -- how it begins, packed

-- What follows in the record of a job that waits: how many values it will have, those up to the 29th, and those behind the
-- 30th, which a later version added.
local function rest_of(record, last)
  local values = string.byte(record, 3)
  if values < LEASE_MS then return '\30', string.sub(record, last + 1), '' end
  local stop, tail = cmsgpack.unpack_limit(record, EXTRA, 3), ''
  if values > LEASE_MS then tail = string.sub(record, cmsgpack.unpack_one(record, stop) + 1) end
  return string.char(values), string.sub(record, last + 1, stop), tail
end

-- The record after it; false where the job is not, or not any longer, pending at this place.
local function lease(id, place, worker, token, lease_ms, floor_us)
  local record = load_packed(id)
  if not record then return false end
  local is_sound, last, state, version, its_place, task, priority, key, drive, delivery, attempts, fence =
    pcall(cmsgpack.unpack_limit, record, 13, 3)
  if not is_sound then return set_aside(id, UNREADABLE, record) end
  if state ~= 'pending' then return false end -- guard: state
  if not task or type(key) ~= 'string' and (key ~= false or has_keys)
    or not pcall(sum, version, its_place, priority, drive, delivery, attempts, fence) then
    return set_aside(id, UNREADABLE, record)
  end
  -- The job left this place and came back at another one.
  if its_place ~= place then return false end
  version, delivery, fence = version + 1, delivery + 1, math.min(math.max(fence + 1, now_us, floor_us), 9007199254740991)
  local deadline = now + lease_ms
  local its_version, its_task, its_key, its_tier = pack_once(version), pack_once(task), pack_once(key), pack_once(priority)
  local its_drive, its_delivery, its_fence = pack_once(drive), pack_once(delivery), pack_once(fence)
  local ends, who = pack_once(deadline), pack_once(worker)
  claim_event = claim_event or '\220\0\17\1\165claim' .. pack_once(now) -- 17 values
  append_packed(
    claim_event .. head_of(id) .. id .. its_version .. its_drive .. '\167pending\166active' .. its_task .. its_key .. its_tier
    .. '\194' .. its_delivery .. pack_once(attempts + 1) .. its_fence .. who .. ends
  )
  local values, rest, tail = rest_of(record, last)
  record = '\220\0' .. values .. '\166active' .. its_version .. cmsgpack.pack(place) .. its_task .. its_tier
    .. its_key .. its_drive .. its_delivery .. pack_once(attempts) .. its_fence .. head_of(token) .. token .. ends .. who
    .. rest .. pack_once(lease_ms) .. tail
  save_packed(id, record)
  gather(added, ACTIVE, score(deadline), id)
  start(key)
  touch(key)
  return record
end

local function is_paused()
  local ends = tonumber(meta[6] or nil)
  return meta[5] and not (ends and ends <= now)
end

-- A claim that found nothing may stand, one in a queue: the enqueue that brings the next job makes it, and sends the job
-- to the channel where its worker listens, which is of no other worker. `standing` is the claim's number, worker, lease_ms,
-- token, channel, until when the worker waits, and the floor of its fences; `handed` the number, worker, channel, the job, its token and deadline.
-- In its next claim the worker says which number it received; any other job that was handed to it comes along, under
-- the same lease. Until then, or until that lease is over, nothing else is handed over.
local function note_of(packed)
  if packed and packed ~= '' then return unpack(cmsgpack.unpack(packed)) end
end

-- main
-- include: promote
-- include: expired

local worker, limit, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, promote_limit, recover_limit = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local pass_limit, lease_limit_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local highest, lowest = tonumber(ARGV[9]), tonumber(ARGV[10])
local floor_us, received, stand_ms, number, channel = tonumber(ARGV[11]), ARGV[12], tonumber(ARGV[13]), ARGV[14], ARGV[15]
-- One that far above the time is ignored.
if floor_us > now_us + 3600000000 then floor_us = 0 end
local paused = is_paused()
local arrival_us = tonumber(meta[8] or 0)
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
  if has_keys then serving[WAITING] = serving[WAITING] - 1 end
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
      lane[TURN], lane[HELD_UNTIL] = false, false
    end
  end
end

local function take()
  if paused then return end -- guard: open
  local allowed = allowance()
  if has_keys then take_by_key(allowed) else take_by_tier(allowed) end
  if declared.rate and #ids > 0 then
    arrival_us = arrival_after(declared.rate, arrival_us, #ids)
    facts.arrival_us = arrival_us
  end
end

-- A job that was handed to this worker and did not reach it.
local function hand_again()
  local its_number, its_worker, its_channel, id, token = note_of(meta[15])
  if its_worker ~= worker or its_channel ~= channel then return end
  facts.handed = ''
  if its_number == received then return end
  local job = load(id)
  if not job or job[STATE] ~= 'active' or job[TOKEN] ~= token or job[DEADLINE] <= now then return end
  job[DEADLINE], job[LEASE_MS] = math.max(job[DEADLINE], now + lease_ms), math.max(job[LEASE_MS] or 0, lease_ms)
  gather(added, ACTIVE, job[DEADLINE], id)
  changed[id] = job
  ids[1] = id
  taken[1], taken[2] = id, cmsgpack.pack(job)
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
  local due = paused and tonumber(meta[6] or nil) or math.huge
  for _, index in ipairs({DELAYED, ACTIVE, HELD}) do
    local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
    if first[2] then due = math.min(due, tonumber(first[2])) end
  end
  if declared.rate and tokens_of(declared.rate, arrival_us) == 0 and anyone_waits() then
    due = math.min(due, opens_at(declared.rate, arrival_us))
  end
  return due < math.huge and math.max(0, due - now)
end

-- One claim stands at a time, where nothing is to be claimed and nothing but that keeps jobs back.
local function may_stand(is_more)
  local _, its_worker, _, _, its_channel, till = note_of(meta[14])
  local is_own = its_worker == worker and its_channel == channel
  local is_free = not its_worker or is_own or till <= now
  local is_kept = #ids > 0 or is_more or rings.ready or paused or meta[7]
  if stand_ms > 0 and is_free and not is_kept then return true end
  if is_own then facts.standing = '' end
  return false
end

local promoted = promote(promote_limit)
-- What was promoted is to be found in its list, and its key among those that are ready.
if promoted > 0 then write_all() end
refresh_touched()
if meta[13] and meta[13] ~= '' then refresh_some(promote_limit) end
if has_keys then release_held(promote_limit) end
hand_again()
take()
-- The others have to hear of what this worker left.
if promoted > #ids then ring_for('pending') end
local expired = expired_leases(recover_limit, lease_limit_ms)
local is_more = passed >= pass_limit or (facts.refreshing or '') ~= ''
local is_contended = meta[16] and meta[16] ~= worker
if #ids > 0 and meta[16] ~= worker then facts.claimant = worker end
local out = {handed_out(), expired, false, has_keys and 1 or 0, is_more and 1 or 0, false, is_contended and 1 or 0, int(now_us)}
local stands = may_stand(is_more)
finish()
out[3] = time_to_wait()
if stands then
  local till = now + math.min(stand_ms, out[3] or stand_ms)
  local token = string.sub(tokens, 1, TOKEN_LENGTH)
  redis.call('HSET', META, 'standing', cmsgpack.pack({number, worker, lease_ms, token, channel, till, floor_us}))
  out[6] = now
end
return out
