-- What somebody has damaged from outside is set aside, in the call that meets it: it is kept for people to look at, and
-- stops nothing any more. An entry is a line of its version, when it was set aside, 1 if there was such a job, else 0, and
-- the lengths of record and payload, -1 for none; a line that says what was found; then record and payload as they were.
local UNREADABLE = 'a record that cannot be read'
local aside = {} -- by this call

-- Take everything of this id out of the queue, but for entries in lists and among the delayed that nothing points to: who
-- comes across one drops it. Always false, as a record that is not there.
local function set_aside(id, what, record)
  if aside[id] then return false end
  local payload = redis.call('HGET', PAYLOADS, id)
  local was_job = redis.call('ZREM', JOBS, id) == 1 or record
  -- An entry that is left of what was set aside before says nothing new.
  if was_job or not redis.call('HGET', QUARANTINE, id) then
    local lengths = int(record and #record or -1) .. ' ' .. int(payload and #payload or -1)
    local head = '1 ' .. int(now) .. (was_job and ' 1 ' or ' 0 ') .. lengths
    gather(set, QUARANTINE, id, head .. '\n' .. what .. '\n' .. (record or '') .. (payload or ''))
  end
  for _, hash in ipairs({RECORDS, PAYLOADS, RESULTS, ERRORS, PROGRESS}) do gather(unset, hash, id) end
  for _, index in ipairs({BLOCKED, ACTIVE, PRUNABLE}) do gather(removed, index, id) end
  for _, state in ipairs({'completed', 'failed', 'dead', 'cancelled'}) do gather(removed, ENDED .. state, id) end
  if record then
    local state, place, key = decode_remains(record)
    if state == 'delayed' and type(place) == 'number' then
      gather(removed, DELAYED, string.format('%016d %s', place, id))
    elseif state == 'active' and has_keys and type(key) == 'string' then
      lane_of(key)[LANE_RUNNING] = lane_of(key)[LANE_RUNNING] - 1
      touch(key)
    end
  end
  loaded[id], changed[id], aside[id] = false, nil, true
  return false
end
