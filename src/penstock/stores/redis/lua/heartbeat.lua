-- heartbeat: active → active; the token must be current and the deadline ahead; deadline = max(old, now + lease)
-- Arguments: the beats, each as id, token; lease_ms; the longest lease.
-- Result, per beat: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: leases

local lease_ms, lease_limit_ms = tonumber(ARGV[2]), tonumber(ARGV[3])

local function heartbeat(id, token)
  local job = load(id, {'state', 'token', 'deadline', 'cancel_requested'})
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse('lost', job.state) end -- guard: state
  if job.token ~= token then return refuse('lost', job.state) end -- guard: token
  if has_expired(job.deadline, lease_limit_ms) then return refuse('lost', job.state) end -- guard: held
  local deadline = math.max(job.deadline, now + lease_ms)
  redis.call('ZADD', ACTIVE, deadline, id)
  redis.call('HSET', JOB .. id, 'deadline', deadline)
  return applied('active', job.cancel_requested)
end

return answer_each(ARGV[1], 2, heartbeat)
