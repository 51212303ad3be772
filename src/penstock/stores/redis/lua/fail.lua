-- fail: active → failed; the token must be current
-- Arguments, per settlement: id, token, reason, and, or nil, the error's first line, its rest and its
--   fingerprint. Called by calls/settle.lua.
-- Result, per settlement: applied/failed, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit = tonumber(ARGV[2])

local function fail(id, token, reason, line, rest, fingerprint)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse_or_repeat(job, token, 'fail') end -- guard: state
  if job.token ~= token then return refuse_or_repeat(job, token, 'fail') end -- guard: token
  return settle('fail', id, job, 'failed', {
    reason = reason, error = line or false, error_rest = rest or false, fingerprint = fingerprint or false,
  }, note_limit)
end
