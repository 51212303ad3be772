-- heartbeat: active → active; the token must be current and the deadline ahead; deadline = max(old, now + lease)
-- Arguments: the beats, each as id, token; lease_ms; the longest lease.
-- Result, per beat: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: shared/leases

local lease_ms, lease_limit_ms = tonumber(ARGV[2]), tonumber(ARGV[3])

local function heartbeat(id, token)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse('lost', job[STATE]) end -- guard: state
  if job[TOKEN] ~= token then return refuse('lost', job[STATE]) end -- guard: token
  if has_expired(job, lease_limit_ms) then return refuse('lost', job[STATE]) end -- guard: held
  job[DEADLINE], job[LEASE_MS] = math.max(job[DEADLINE], now + lease_ms), math.max(job[LEASE_MS] or 0, lease_ms)
  -- No event tells of this time, and a lease now counts on it.
  meta_updates.last_us = now_us
  gather(added, ACTIVE, job[DEADLINE], id)
  changed[id] = job
  return applied('active', job[CANCEL_REQUESTED])
end

return answer_each(ARGV[1], 2, 1, heartbeat)
