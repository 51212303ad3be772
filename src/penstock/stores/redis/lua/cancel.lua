-- cancel: blocked / pending / delayed / active → cancelled / active; what waits is cancelled; of what runs the request is noted
-- Arguments: the ids; the reason of a cancelled job.
-- Result, per id: applied/cancelled; applied/active/cancel while it runs.
-- Refusals: missing; state, when it has ended.
-- flags: allow-oom
-- include: outcomes

local LIVE = {blocked = true, pending = true, delayed = true, active = true}
local CANCELLABLE = {
  'state', 'cancel_requested', 'place', 'version', 'drive', 'task', 'key', 'priority', 'error', 'fingerprint', 'reason',
  'retention_ms',
}

local function cancel(id)
  local job = load(id, CANCELLABLE)
  if not job then return refuse('missing') end
  if not LIVE[job.state] then return refuse('state', job.state) end -- guard: state
  if job.cancel_requested then return applied(job.state, true) end
  job.version = job.version + 1
  if job.state == 'active' then
    append_of('cancel', id, job, 'active', 'active')
    write(id, {cancel_requested = 1, version = job.version})
    return applied('active', true)
  end
  leave(id, job)
  job.reason = ARGV[2]
  append_of('cancel', id, job, job.state, 'cancelled')
  enter(id, job, 'cancelled')
  write(id, {
    state = 'cancelled', version = job.version, reason = job.reason, ended_at = now, visible_at = false,
  })
  ring_for('cancelled')
  return applied('cancelled')
end

local out = {}
for i, id in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = cancel(id) end
return finish(out)
