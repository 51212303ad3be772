-- redrive: failed / dead / cancelled → pending; to the back; attempts 0, drive + 1, policy and options kept
-- Arguments: the ids.
-- Result, per id: applied/pending.
-- Refusals: missing; state, when it cannot be redriven.
-- include: outcomes

local REDRIVABLE = {dead = true, failed = true, cancelled = true}

local function redrive(id)
  local job = load(id, {'state', 'version', 'drive', 'task', 'key', 'priority'})
  if not job then return refuse('missing') end
  if not REDRIVABLE[job.state] then return refuse('state', job.state) end -- guard: state
  leave(id, job)
  job.version, job.drive = job.version + 1, job.drive + 1
  append_of('redrive', id, job, job.state, 'pending')
  write(id, {
    state = 'pending', version = job.version, drive = job.drive, place = enter(id, job, 'pending'), attempts = 0,
    cancel_requested = false, last_delay_ms = false, reason = false, error = false, error_rest = false,
    fingerprint = false, ended_at = false,
  })
  ring_for('pending')
  return applied('pending')
end

local out = {}
for i, id in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = redrive(id) end
return finish(out)
