-- expire: active → delayed / dead / pending; the token must be current and the deadline passed; attempts + 1; cancelled if that was asked for
-- Arguments: the expiries, each as id, token, target, delay_ms, reason, and, or nil, the error's first line, its rest
--   and its fingerprint; the longest lease; the reason of a cancelled job.
-- Result, per expiry: applied/<target> or applied/cancelled.
-- Refusals: lost.
-- flags: allow-oom
-- include: shared/leases

local lease_limit_ms, cancelled = tonumber(ARGV[2]), ARGV[3]

local function expire(id, token, target, delay_ms, ...)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse('lost', job[STATE]) end -- guard: state
  if job[TOKEN] ~= token then return refuse('lost', job[STATE]) end -- guard: token
  if not has_expired(job, lease_limit_ms) then return refuse('lost', job[STATE]) end -- guard: expired
  count_fault(id, job, ...)
  if job[CANCEL_REQUESTED] then
    job[REASON] = cancelled
    return end_lease('expire', id, job, 'cancelled')
  end
  forget_unhandled(job)
  if target == 'delayed' then job[VISIBLE_AT], job[LAST_DELAY_MS] = now + delay_ms, delay_ms end
  return end_lease('expire', id, job, target, true)
end

return answer_each(ARGV[1], 8, 1, expire)
