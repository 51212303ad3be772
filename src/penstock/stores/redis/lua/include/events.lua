-- include: writes
-- include: fields
-- frame
-- The event log: numbered without gaps, written by the script that makes the move. An event is an array in the order
-- of records.py, cut after its last value; what every event of the queue shares is left to the reader.
local LEASE = {
  progress = true, fail = true, retry = true, bury = true, snooze = true,
  release = true, expire = true,
}
local COUNTED = {retry = true, bury = true, expire = true}
local FAULT = {fail = true, retry = true, bury = true, expire = true, cancel = true, unblock = true}

local function append_packed(event)
  seq = seq + 1
  logged[seq - first_seq] = event
end

local function append(event)
  append_packed(cmsgpack.pack(event))
end

local function fill(event, last)
  for at = #event + 1, last do event[at] = false end
end

-- `job` is the record after the move, `deadline` that of its lease before it.
local function append_of(move, id, job, source, deadline)
  local state = job[STATE]
  local event = {
    1, move, now, id, job[VERSION], job[DRIVE], source, state, job[TASK], job[KEY], job[PRIORITY],
  }
  if LEASE[move] then
    event[12], event[13] = false, job[DELIVERY]
    event[14] = COUNTED[move] and job[ATTEMPTS] or job[ATTEMPTS] + 1
    event[15], event[16] = job[FENCE], job[WORKER]
    if move == 'expire' then event[17] = deadline end
  end
  if state == 'delayed' then
    fill(event, 17)
    event[18] = job[VISIBLE_AT]
  end
  if FAULT[move] or state == 'cancelled' then
    fill(event, 18)
    event[19], event[20], event[21] = job[REASON], job[ERROR], job[FINGERPRINT]
  elseif move == 'snooze' and job[EXTRA] and job[EXTRA].unhandled_since then
    fill(event, 18)
    event[19] = job[REASON]
  end
  append(event)
end

local function append_enqueue(id, job, max_attempts)
  local event = {
    1, 'enqueue', now, id, 1, 1, false, job[STATE], job[TASK], job[KEY], job[PRIORITY], max_attempts,
  }
  if job[STATE] == 'delayed' then
    fill(event, 17)
    event[18] = job[VISIBLE_AT]
  end
  if job[IDEMPOTENCY_KEY] then
    fill(event, 21)
    event[22] = job[IDEMPOTENCY_KEY]
  end
  local extra = job[EXTRA]
  if extra then
    fill(event, 22)
    event[23] = extra.parents and extra.parents[1][1] .. '/' .. extra.parents[1][2] or false
    event[24], event[25] = extra.schedule or false, extra.instant or false
  end
  append(event)
end

-- One event for all that a call removed; `job` is the record where it was one that an operator deleted.
local function append_removal(move, reason, ids, job)
  local event = {1, move, now}
  if job then
    event[4], event[5], event[6], event[7], event[8] = ids[1], job[VERSION] + 1, job[DRIVE], job[STATE], false
    event[9], event[10], event[11] = job[TASK], job[KEY], job[PRIORITY]
  end
  fill(event, 17)
  event[18] = job and job[STATE] == 'delayed' and job[VISIBLE_AT]
  event[19] = reason
  if job and job[STATE] == 'cancelled' then event[20], event[21] = job[ERROR], job[FINGERPRINT] end
  if not job then
    fill(event, 25)
    event[26] = ids
  end
  append(event)
end
