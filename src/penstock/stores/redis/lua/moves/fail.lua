-- fail: active → failed; the token must be current
-- Arguments, per settlement: id, token, reason, and, or nil, the error's first line, its rest and its
--   fingerprint. Called by calls/settle.lua.
-- Result, per settlement: applied/failed, also when this token has done it before.
-- Refusals: lost.
-- include: shared/leases

local note_limit = tonumber(ARGV[2])

local function fail(id, token, ...)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'fail') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'fail') end -- guard: token
  set_fault(id, job, ...)
  return settle('fail', id, job, 'failed', note_limit)
end
