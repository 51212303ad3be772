-- include: events
-- Records and the indexes they stand in. A field that is absent is None.
local NUMERIC = {
  version = true, drive = true, delivery = true, attempts = true, fence = true, deadline = true,
  priority = true, visible_at = true, ended_at = true, retention_ms = true, key_held_ms = true,
  progress_at = true, place = true, enqueued_at = true, last_delay_ms = true,
}

-- The named fields of a record, the first of which is its state; nil if there is no such job.
local function load(id, fields)
  local values = redis.call('HMGET', JOB .. id, unpack(fields))
  if not values[1] then return nil end
  local job = {}
  for i, name in ipairs(fields) do
    local value = values[i]
    if value then job[name] = NUMERIC[name] and tonumber(value) or value end
  end
  return job
end

-- Write fields of a record; false takes one away.
local function write(id, fields)
  local set, gone = {}, {}
  for name, value in pairs(fields) do
    if value == false then
      gone[#gone + 1] = name
    else
      set[#set + 1] = name
      set[#set + 1] = value
    end
  end
  if #gone > 0 then redis.call('HDEL', JOB .. id, unpack(gone)) end
  redis.call('HSET', JOB .. id, unpack(set))
end

-- Pending jobs stand in one list per tier. What is cancelled or deleted is not searched for there, which
-- would take time with the length of the list: its entry stays, is noted in GONE, and the claim drops it.
-- An entry carries the place that the record had when it was made, so that an old one never stands for a
-- job that came back. Places grow towards the back; those at the front are negative.
local function pending_entry(id, place) return int(place) .. ' ' .. id end

-- The place breaks ties: members with equal scores sort by their bytes.
local function delayed_entry(id, place) return string.format('%016d ', place) .. id end

-- Put a job where its new state belongs; its place, if that state has places. Comes after the event, whose
-- number the place is.
local function enter(id, job, state, front)
  if state == 'pending' then
    local place = front and -seq or seq
    redis.call(front and 'LPUSH' or 'RPUSH', PENDING .. job.priority, pending_entry(id, place))
    return place
  elseif state == 'delayed' then
    redis.call('ZADD', DELAYED, job.visible_at, delayed_entry(id, seq))
    return seq
  end
  redis.call('ZADD', ENDED .. state, now, id)
  if state ~= 'dead' then redis.call('ZADD', PRUNABLE, now + job.retention_ms, id) end
end

-- Take a job that is not running out of where its state put it.
local function leave(id, job)
  if job.state == 'pending' then
    redis.call('ZADD', GONE .. job.priority, job.place, pending_entry(id, job.place))
  elseif job.state == 'delayed' then
    redis.call('ZREM', DELAYED, delayed_entry(id, job.place))
  else
    redis.call('ZREM', ENDED .. job.state, id)
    redis.call('ZREM', PRUNABLE, id)
  end
end
