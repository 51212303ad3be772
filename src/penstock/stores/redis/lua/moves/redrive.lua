-- redrive: failed / dead / cancelled → pending; to the back; attempts 0, drive + 1, policy and options kept
-- Arguments: the ids, each in an array of its own.
-- Result, per id: applied/pending.
-- Refusals: missing; state, when it cannot be redriven; keyless, when it is from before the queue had keys.
-- flags: allow-oom
-- include: shared/leases

local REDRIVABLE = {dead = true, failed = true, cancelled = true}

local function redrive(id)
  local job = load(id)
  if not job then return refuse('missing') end
  if not REDRIVABLE[job[STATE]] then return refuse('state', job[STATE]) end -- guard: state
  if has_keys and not job[KEY] then return refuse('keyless', job[STATE]) end
  set_fault(id, job)
  forget_unhandled(job)
  job[DRIVE], job[ATTEMPTS] = job[DRIVE] + 1, 0
  job[CANCEL_REQUESTED], job[LAST_DELAY_MS], job[ENDED_AT] = false, false, false
  lead('redrive', id, job, 'pending')
  notify_for('pending')
  return applied('pending')
end

return answer_each(ARGV[1], 1, 1, redrive)
