-- progress: active → active; the token must be current; the last value is kept
-- Arguments: the reports, each as id, token, the number of the argument with its value; the least time between two
--   events of a job; then the values, one argument each.
-- Result, per report: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: shared/leases

local every_ms = tonumber(ARGV[2])

local function progress(id, token, value_at)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse('lost', job[STATE]) end -- guard: state
  if job[TOKEN] ~= token then return refuse('lost', job[STATE]) end -- guard: token
  gather(set, PROGRESS, id, ARGV[value_at])
  if not job[PROGRESS_AT] or now >= job[PROGRESS_AT] + every_ms then
    job[VERSION], job[PROGRESS_AT] = job[VERSION] + 1, now
    append_of('progress', id, job, 'active')
    changed[id] = job
  end
  return applied('active', job[CANCEL_REQUESTED])
end

return answer_each(ARGV[1], 3, 1, progress)
