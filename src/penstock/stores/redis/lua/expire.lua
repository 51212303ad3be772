-- expire: active → delayed / dead / pending; the token must be current and the deadline passed; attempts + 1; cancelled if that was asked for
-- Arguments: the expiries, each as id, token, target, delay_ms, reason, and, or nil, the error's first line, its rest
--   and its fingerprint; the longest lease; the reason of a cancelled job.
-- Result, per expiry: applied/<target> or applied/cancelled.
-- Refusals: lost.
-- flags: allow-oom
-- include: leases

local lease_limit_ms, cancelled = tonumber(ARGV[2]), ARGV[3]

local function expire(id, token, target, delay_ms, reason, line, rest, fingerprint)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse('lost', job.state) end -- guard: state
  if job.token ~= token then return refuse('lost', job.state) end -- guard: token
  if not has_expired(job.deadline, lease_limit_ms) then return refuse('lost', job.state) end -- guard: expired
  local changes = {
    attempts = job.attempts + 1, reason = reason, error = line or false, error_rest = rest or false,
    fingerprint = fingerprint or false,
  }
  if job.cancel_requested then
    changes.reason = cancelled
    return end_lease('expire', id, job, 'cancelled', changes)
  end
  if target == 'delayed' then changes.visible_at, changes.last_delay_ms = now + delay_ms, delay_ms end
  return end_lease('expire', id, job, target, changes, true)
end

return answer_each(ARGV[1], 8, expire)
