-- complete: active → completed; the token must be current
-- Arguments, per settlement: id, token, the number of the argument with the result or nil. Called by calls/settle.lua.
-- Result, per settlement: applied/completed, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit = tonumber(ARGV[2])

local function complete(id, token, result_at)
  local job = load(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'complete') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'complete') end -- guard: token
  local result = result_at and ARGV[result_at]
  if result then gather(set, RESULTS, id, result) end
  set_fault(id, job)
  return settle('complete', id, job, 'completed', note_limit, false, result)
end
