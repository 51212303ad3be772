-- retry: active → delayed; the token must be current; attempts + 1; cancelled if that was asked for
-- Arguments, per settlement: id, token, delay_ms, reason, and, or nil, the error's first line, its rest and its
--   fingerprint. Called by calls/settle.lua.
-- Result, per settlement: applied/delayed or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: shared/leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function retry(id, token, delay_ms, ...)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'retry') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'retry') end -- guard: token
  count_fault(id, job, ...)
  if job[CANCEL_REQUESTED] then
    job[REASON] = cancelled
    return settle('retry', id, job, 'cancelled', note_limit)
  end
  forget_unhandled(job)
  job[VISIBLE_AT], job[LAST_DELAY_MS] = now + delay_ms, delay_ms
  return settle('retry', id, job, 'delayed', note_limit)
end
