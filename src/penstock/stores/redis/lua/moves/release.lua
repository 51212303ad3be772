-- release: active → pending; the token must be current; to the front; no attempt used; cancelled if that was asked for
-- Arguments, per settlement: id, token, and, or nil, the first line and the rest of what its handler said of a
--   cancel. Called by calls/settle.lua.
-- Result, per settlement: applied/pending or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: shared/leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function release(id, token, line, rest)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'release') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'release') end -- guard: token
  if job[CANCEL_REQUESTED] then
    if line then set_fault(id, job, cancelled, line, rest, job[FINGERPRINT]) end
    job[REASON] = cancelled
    return settle('release', id, job, 'cancelled', note_limit)
  end
  return settle('release', id, job, 'pending', note_limit, true)
end
