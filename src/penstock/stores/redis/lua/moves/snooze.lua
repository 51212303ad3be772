-- snooze: active → delayed; the token must be current; no attempt used; cancelled if that was asked for
-- Arguments, per settlement: id, token, delay_ms, and, or nil, the reason why no handler could run it. Called by
--   calls/settle.lua.
-- Result, per settlement: applied/delayed or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: shared/leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function snooze(id, token, delay_ms, reason)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'snooze') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'snooze') end -- guard: token
  if job[CANCEL_REQUESTED] then
    job[REASON] = cancelled
    return settle('snooze', id, job, 'cancelled', note_limit)
  end
  job[VISIBLE_AT] = now + delay_ms
  if reason then
    job[REASON], job[EXTRA] = reason, job[EXTRA] or {}
    job[EXTRA].unhandled_since = job[EXTRA].unhandled_since or now
  else
    forget_unhandled(job)
  end
  return settle('snooze', id, job, 'delayed', note_limit)
end
