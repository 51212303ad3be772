-- cancel: blocked / pending / delayed / active → cancelled / active; what waits is cancelled; of what runs the request is noted
-- Arguments: the ids, each in an array of its own; the reason of a cancelled job.
-- Result, per id: applied/cancelled; applied/active/cancel while it runs.
-- Refusals: missing; state, when it has ended.
-- flags: allow-oom
-- include: shared/relays

local cancelled = ARGV[2]
local LIVE = {blocked = true, pending = true, delayed = true, active = true}

local function cancel(id)
  local job = load(id)
  if not job then return refuse('missing') end
  if not LIVE[job[STATE]] then return refuse('state', job[STATE]) end -- guard: state
  if job[STATE] == 'active' then topics.control = true end
  if job[CANCEL_REQUESTED] then return applied(job[STATE], true) end
  if job[STATE] == 'active' then
    job[VERSION], job[CANCEL_REQUESTED] = job[VERSION] + 1, true
    append_of('cancel', id, job, 'active')
    changed[id] = job
    touch(job[KEY])
    return applied('active', true)
  end
  job[REASON], job[ENDED_AT] = cancelled, now
  tell_parents(id, job[EXTRA], 'cancelled')
  lead('cancel', id, job, 'cancelled')
  notify_for('cancelled')
  return applied('cancelled')
end

return answer_each(ARGV[1], 1, 1, cancel)
