-- progress: active → active; the token must be current; the last value is kept
-- Arguments: the reports, each as id, token; the least time between two events of a job; then the values, one
--   argument each.
-- Result, per report: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: leases

local every_ms = tonumber(ARGV[2])

local REPORTED = {
  'state', 'token', 'version', 'drive', 'task', 'key', 'priority', 'delivery', 'attempts', 'fence', 'worker',
  'cancel_requested', 'progress_at',
}

local function progress(value, id, token)
  local job = load(id, REPORTED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse('lost', job.state) end -- guard: state
  if job.token ~= token then return refuse('lost', job.state) end -- guard: token
  if job.progress_at and now < job.progress_at + every_ms then
    redis.call('HSET', JOB .. id, 'progress', value)
  else
    job.version = job.version + 1
    append_of('progress', id, job, 'active', 'active')
    write(id, {progress = value, progress_at = now, version = job.version})
  end
  return applied('active', job.cancel_requested)
end

local out = {}
for i, item in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = progress(ARGV[2 + i], unpack(item, 1, 2)) end
return finish(out)
