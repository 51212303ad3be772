-- release: active → pending; the token must be current; to the front; no attempt used; cancelled if that was asked for
-- Arguments, per settlement: id, token. Called by calls/settle.lua.
-- Result, per settlement: applied/pending or applied/cancelled, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit, cancelled = tonumber(ARGV[2]), ARGV[3]

local function release(id, token)
  local job = load(id, LEASED)
  if not job then return refuse('lost') end
  if job.state ~= 'active' then return refuse_or_repeat(job, token, 'release') end -- guard: state
  if job.token ~= token then return refuse_or_repeat(job, token, 'release') end -- guard: token
  if job.cancel_requested then
    return settle('release', id, job, 'cancelled', {reason = cancelled}, note_limit)
  end
  return settle('release', id, job, 'pending', {}, note_limit, true)
end
