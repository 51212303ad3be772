-- release: active → pending; the token must be current; to the front; no attempt used; cancelled if that was asked for
-- Arguments, per settlement: id, token, and, or nil, the first line and the rest of what its handler said of a
--   cancel. Called by calls/settle.lua.
-- Result, per settlement: applied/pending or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function release(id, token, line, rest)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse_or_repeat(job, token, 'release') end -- guard: state
  if job.token ~= token then return refuse_or_repeat(job, token, 'release') end -- guard: token
  if job.cancel_requested then
    local changes = {reason = cancelled}
    if line then changes.error, changes.error_rest = line, rest or false end
    return settle('release', id, job, 'cancelled', changes, note_limit)
  end
  return settle('release', id, job, 'pending', {}, note_limit, true)
end
