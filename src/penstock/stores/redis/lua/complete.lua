-- complete: active → completed; the token must be current
-- Arguments, per settlement: id, token, the number of the argument with the result or nil. Called by calls/settle.lua.
-- Result, per settlement: applied/completed, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit = tonumber(ARGV[2])

local function complete(id, token, result_at)
  local record = load_packed(id)
  if not record then return refuse('lost') end
  local last, state, version, place, task, priority, key, drive, delivery, attempts, fence, held, _, worker, cancel,
    visible_at, last_delay_ms, _, failure, _, _, progress_at, notes = cmsgpack.unpack_limit(record, 22, 3)
  if state ~= 'active' then return refuse_or_repeat(load(id), token, 'complete') end -- guard: state
  if held ~= token then return refuse_or_repeat(load(id), token, 'complete') end -- guard: token
  local result = result_at and ARGV[result_at]
  if result then gather(set, RESULTS, id, result) end
  if failure then gather(unset, ERRORS, id) end
  local _, _, retention_ms, _, _, _, _, extra = cmsgpack.unpack_limit(record, 7, last)
  tell_parents(id, extra, 'completed', result)
  version = version + 1
  append_packed('\220\0\16' .. cmsgpack.pack(
    1, 'complete', now, id, version, drive, state, 'completed', task, key, priority, false, delivery, attempts + 1, fence,
    worker
  ))
  save_packed(
    id, record, last, 'completed', version, place, task, priority, key, drive, delivery, attempts, fence, false, false,
    worker, cancel, visible_at, last_delay_ms, false, false, false, now, progress_at,
    noted(notes, token, 'complete', 'completed', note_limit)
  )
  gather(removed, ACTIVE, id)
  gather(added, ENDED .. 'completed', score(now), id)
  gather(added, PRUNABLE, score(now + retention_ms), id)
  stop(key)
  touch(key)
  ring_for('completed')
  return 'applied/completed'
end
