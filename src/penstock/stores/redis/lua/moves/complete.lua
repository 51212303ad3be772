-- complete: active → completed; the token must be current
-- Arguments, per settlement: id, token, the number of the argument with the result or nil. Called by calls/settle.lua.
-- Result, per settlement: applied/completed, also when this token has done it before.
-- Refusals: lost.
-- include: shared/packed

local note_limit = tonumber(ARGV[2])

local function complete(id, token, result_at)
  local job = load_packed(id)
  if not job then return refuse('lost') end
  if job[STATE] ~= 'active' then return refuse_or_repeat(job, token, 'complete') end -- guard: state
  if job[TOKEN] ~= token then return refuse_or_repeat(job, token, 'complete') end -- guard: token
  local result = result_at and ARGV[result_at]
  if result then gather(set, RESULTS, id, result) end
  if job[ERROR] then gather(unset, ERRORS, id) end
  job[STATE], job[VERSION], job[ENDED_AT], job[VISIBLE_AT] = 'completed', job[VERSION] + 1, now, false
  job[REASON], job[ERROR], job[FINGERPRINT] = false, false, false
  job[SETTLED] = noted(job[SETTLED], token, 'complete', 'completed', note_limit)
  tell_parents(id, job[EXTRA], 'completed', result)
  save_completed(id, job)
  gather(removed, ACTIVE, id)
  gather(added, ENDED .. 'completed', score(now), id)
  gather(added, PRUNABLE, score(now + job[RETENTION_MS]), id)
  stop(job[KEY])
  touch(job[KEY])
  notify_for('completed')
  return 'applied/completed'
end
