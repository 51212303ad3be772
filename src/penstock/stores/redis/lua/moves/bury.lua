-- bury: active → dead; the token must be current; attempts + 1 unless none could begin; cancelled if that was asked for
-- Arguments, per settlement: id, token, whether it uses an attempt, reason, and, or nil, the error's first line, its
--   rest and its fingerprint. Called by calls/settle.lua.
-- Result, per settlement: applied/dead or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: shared/leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function bury(id, token, uses_attempt, ...)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'bury') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'bury') end -- guard: token
  count_fault(id, job, ...)
  if job[CANCEL_REQUESTED] then job[REASON] = cancelled end
  local answer = settle('bury', id, job, job[CANCEL_REQUESTED] and 'cancelled' or 'dead', note_limit)
  -- The event has the number of the attempt that would have been; the record counts those that were.
  if not uses_attempt then job[ATTEMPTS] = job[ATTEMPTS] - 1 end
  return answer
end
