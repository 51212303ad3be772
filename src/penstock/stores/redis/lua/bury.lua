-- bury: active → dead; the token must be current; attempts + 1; cancelled if that was asked for
-- Arguments, per settlement: id, token, reason, and, or nil, the error's first line, its rest and its
--   fingerprint. Called by calls/settle.lua.
-- Result, per settlement: applied/dead or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function bury(id, token, reason, line, rest, fingerprint)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse_or_repeat(job, token, 'bury') end -- guard: state
  if job.token ~= token then return refuse_or_repeat(job, token, 'bury') end -- guard: token
  local changes = {
    attempts = job.attempts + 1, reason = reason, error = line or false, error_rest = rest or false,
    fingerprint = fingerprint or false,
  }
  if job.cancel_requested then
    changes.reason = cancelled
    return settle('bury', id, job, 'cancelled', changes, note_limit)
  end
  return settle('bury', id, job, 'dead', changes, note_limit)
end
