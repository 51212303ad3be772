-- snooze: active → delayed; the token must be current; no attempt used; cancelled if that was asked for
-- Arguments, per settlement: id, token, delay_ms. Called by calls/settle.lua.
-- Result, per settlement: applied/delayed or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function snooze(id, token, delay_ms)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse_or_repeat(job, token, 'snooze') end -- guard: state
  if job.token ~= token then return refuse_or_repeat(job, token, 'snooze') end -- guard: token
  if job.cancel_requested then
    return settle('snooze', id, job, 'cancelled', {reason = cancelled}, note_limit)
  end
  return settle('snooze', id, job, 'delayed', {visible_at = now + delay_ms}, note_limit)
end
