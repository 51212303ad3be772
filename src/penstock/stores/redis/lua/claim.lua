-- claim: pending → active; the queue must be open; new token and fence, delivery + 1, deadline = now + lease
-- Arguments: worker, how many at most, lease_ms, fresh tokens, how many to promote, to recover and to pass over at
--   most, the longest lease, the highest and the lowest tier.
-- Result: the jobs claimed; the leases that ran out; the time until something becomes due, or nil.
-- Refusals: none; a paused queue gives nothing.
-- flags: allow-oom
-- include: promote
-- include: expired

local worker, limit, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, promote_limit, recover_limit = cmsgpack.unpack(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local pass_limit, lease_limit_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local highest, lowest = tonumber(ARGV[9]), tonumber(ARGV[10])
local pause_ends = tonumber(paused_until or nil)
local paused = paused_at and not (pause_ends and pause_ends <= now)

local CLAIMABLE = {
  'state', 'place', 'version', 'drive', 'task', 'key', 'priority', 'delivery', 'attempts', 'fence', 'payload',
  'options', 'enqueued_at', 'last_delay_ms', 'cancel_requested',
}

local function claim(id, place, token)
  local job = load(id, CLAIMABLE)
  if not job then return nil end
  if job.state ~= 'pending' then return nil end -- guard: state
  -- The job left this place and came back at another one.
  if job.place ~= place then return nil end
  job.version, job.delivery, job.worker = job.version + 1, job.delivery + 1, worker
  job.fence, job.deadline = math.max(job.fence + 1, now_us), now + lease_ms
  append_of('claim', id, job, 'pending', 'active')
  redis.call('ZADD', ACTIVE, job.deadline, id)
  write(id, {
    state = 'active', version = job.version, token = token, worker = worker, fence = job.fence,
    delivery = job.delivery, deadline = job.deadline,
  })
  return {
    id, job.task, job.payload, job.priority, job.options, job.enqueued_at, job.drive, job.delivery, job.attempts,
    token, job.fence, job.deadline, job.key or false, job.last_delay_ms or false, job.cancel_requested or false,
  }
end

-- The jobs claimed, and whether entries of jobs that are gone used up the work that one call may do.
local function take()
  local taken, passed = {}, 0
  if paused then return taken, false end -- guard: open
  for tier = highest, lowest, -1 do
    while #taken < limit and passed < pass_limit do
      local most = math.min(limit - #taken, pass_limit - passed)
      local entries = redis.call('LPOP', PENDING .. tier, most)
      if not entries then break end
      for _, entry in ipairs(entries) do
        local place, id = string.match(entry, '^(%S+) (.+)$')
        local job = claim(id, tonumber(place), tokens[#taken + 1])
        if job then
          taken[#taken + 1] = job
        else
          redis.call('ZREM', GONE .. tier, entry)
          passed = passed + 1
        end
      end
    end
  end
  return taken, passed >= pass_limit
end

-- The time until the first of what is delayed, leased or paused becomes due.
local function time_to_wait(is_more)
  if is_more then return 0 end
  local due = not paused and math.huge or pause_ends or math.huge
  for _, index in ipairs({DELAYED, ACTIVE}) do
    local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
    if first[2] then due = math.min(due, tonumber(first[2])) end
  end
  return due < math.huge and math.max(0, due - now)
end

local promoted = promote(promote_limit)
local taken, is_more = take()
-- The others have to hear of what this worker left.
if promoted > #taken then ring_for('pending') end
return finish({taken, expired_leases(recover_limit, lease_limit_ms), time_to_wait(is_more)})
