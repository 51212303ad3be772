-- complete: active → completed; the token must be current
-- Arguments, per settlement: id, token, the number of the argument with the result or nil. Called by calls/settle.lua.
-- Result, per settlement: applied/completed, also when this token has done it before.
-- Refusals: lost.
-- include: leases

local note_limit = tonumber(ARGV[2])
local complete_event -- how it begins, packed

local function complete(id, token, result_at)
  local record = load_packed(id)
  if not record then return refuse('lost') end
  local is_sound, last, state, version, place, task, priority, key, drive, delivery, attempts, fence, held, _, worker, cancel,
    visible_at, last_delay_ms, _, failure, _, _, progress_at, notes =
    pcall(cmsgpack.unpack_limit, record, 22, 3)
  if not is_sound then return refuse('lost', set_aside(id, UNREADABLE, record)) end
  if state ~= 'active' then return refuse_or_repeat(load(id), token, 'complete') end -- guard: state
  if held ~= token then return refuse_or_repeat(load(id), token, 'complete') end -- guard: token
  local is_whole, _, _, retention_ms, _, _, _, _, extra = pcall(cmsgpack.unpack_limit, record, 7, last)
  if not is_whole or extra and type(extra) ~= 'table' or has_keys and type(key) ~= 'string'
    or not pcall(sum, version, place, drive, delivery, attempts, fence, retention_ms) then
    return refuse('lost', set_aside(id, UNREADABLE, record))
  end
  local result = result_at and ARGV[result_at]
  if result then gather(set, RESULTS, id, result) end
  if failure then gather(unset, ERRORS, id) end
  tell_parents(id, extra, 'completed', result)
  version = version + 1
  local its_version, its_task, its_key, its_tier = pack_once(version), pack_once(task), pack_once(key), pack_once(priority)
  local its_drive, its_delivery, its_fence, who = pack_once(drive), pack_once(delivery), pack_once(fence), pack_once(worker)
  local note, none = noted(notes, token, 'complete', 'completed', note_limit), '\194'
  complete_event = complete_event or '\220\0\16\1\168complete' .. pack_once(now) -- 16 values
  append_packed(
    complete_event .. head_of(id) .. id .. its_version .. its_drive .. '\166active\169completed' .. its_task .. its_key .. its_tier
    .. none .. its_delivery .. pack_once(attempts + 1) .. its_fence .. who
  )
  save_packed(
    id,
    string.sub(record, 1, 3) .. '\169completed' .. its_version .. cmsgpack.pack(place) .. its_task .. its_tier
    .. its_key .. its_drive .. its_delivery .. pack_once(attempts) .. its_fence .. none .. none .. who .. pack_once(cancel)
    .. pack_once(visible_at) .. pack_once(last_delay_ms) .. none .. none .. none .. pack_once(now) .. pack_once(progress_at)
    .. head_of(note) .. note .. string.sub(record, last + 1)
  )
  gather(removed, ACTIVE, id)
  gather(added, ENDED .. 'completed', score(now), id)
  gather(added, PRUNABLE, score(now + retention_ms), id)
  stop(key)
  touch(key)
  ring_for('completed')
  return 'applied/completed'
end
