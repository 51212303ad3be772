-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Arguments: worker, how many at most, lease_ms, fresh tokens, how many to promote, to recover and to pass over at
--   most, the longest lease, the highest and the lowest tier.
-- Result: the jobs claimed, each as its id, record and payload; the leases that ran out, each as its id and record;
--   the time until something becomes due, or nil; 1 where keys take turns, else 0; 1 where this call could not look at
--   all it should have, else 0.
-- Refusals: none; a paused queue gives nothing.
-- flags: allow-oom
-- include: promote
-- include: expired

local worker, limit, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, promote_limit, recover_limit = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local pass_limit, lease_limit_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local highest, lowest = tonumber(ARGV[9]), tonumber(ARGV[10])
local pause_ends = tonumber(meta[6] or nil)
local paused = meta[5] and not (pause_ends and pause_ends <= now)
local arrival_us = tonumber(meta[8] or 0)
local deadline = now + lease_ms
local TOKEN_LENGTH = 32

local taken, ids, passed = {}, {}, 0

local function claim(id, place)
  local record = load_packed(id)
  if not record then return false end
  local last, state, version, its_place, task, priority, key, drive, delivery, attempts, fence =
    cmsgpack.unpack_limit(record, 13, 3)
  if state ~= 'pending' then return false end -- guard: state
  -- The job left this place and came back at another one.
  if its_place ~= place then return false end
  local nth = #ids * TOKEN_LENGTH
  local token = string.sub(tokens, nth + 1, nth + TOKEN_LENGTH)
  version, delivery, fence = version + 1, delivery + 1, math.max(fence + 1, now_us)
  append_packed('\220\0\17' .. cmsgpack.pack(
    1, 'claim', now, id, version, drive, state, 'active', task, key, priority, false, delivery, attempts + 1, fence, worker,
    deadline
  ))
  record = save_packed(
    id, record, last, 'active', version, place, task, priority, key, drive, delivery, attempts, fence, token, deadline, worker
  )
  gather(added, ACTIVE, score(deadline), id)
  start(key)
  touch(key)
  ids[#ids + 1] = id
  taken[#taken + 1], taken[#taken + 2] = id, record
  return true
end

local function claim_entry(line, entry)
  local place, id = string.match(entry, '^(%S+) (.+)$')
  if claim(id, tonumber(place)) then return true end
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
      local next_ids = {}
      for i, entry in ipairs(entries) do next_ids[i] = string.match(entry, ' (.+)$') end
      look_up(next_ids)
      for _, entry in ipairs(entries) do claim_entry(tier, entry) end
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
      if claim_entry(line, entry) then serve(key, lane) end
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
  local due = paused and pause_ends or math.huge
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
if meta[13] and meta[13] ~= '' then refresh_some(promote_limit) end
if has_keys then release_held(promote_limit) end
take()
-- The others have to hear of what this worker left.
if promoted > #ids then ring_for('pending') end
local expired = expired_leases(recover_limit, lease_limit_ms)
local is_more = passed >= pass_limit or (facts.refreshing or '') ~= ''
local out = {handed_out(), expired, false, has_keys and 1 or 0, is_more and 1 or 0}
finish()
out[3] = time_to_wait()
return out
