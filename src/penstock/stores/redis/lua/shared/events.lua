-- include: shared/writes
-- frame
-- The event log: numbered without gaps, written by the script that makes the move.
local LEASE = {
  claim = true, progress = true, complete = true, fail = true, retry = true, bury = true, snooze = true, release = true,
  expire = true,
}
-- Moves that have counted the attempt already.
local COUNTED = {retry = true, bury = true, expire = true}
local FAULT = {fail = true, retry = true, bury = true, expire = true, cancel = true, unblock = true}

local function add_job(event, id, job, source)
  event[EVENT_JOB], event[EVENT_VERSION], event[EVENT_DRIVE], event[EVENT_SOURCE] = id, job[VERSION], job[DRIVE], source
  event[EVENT_TARGET], event[EVENT_TASK], event[EVENT_KEY] = job[STATE], job[TASK], job[KEY]
  event[EVENT_PRIORITY] = job[PRIORITY]
end

local function add_fault(event, job)
  event[EVENT_REASON], event[EVENT_ERROR], event[EVENT_FINGERPRINT] = job[REASON], job[ERROR], job[FINGERPRINT]
end

-- `job` is the record after the move, `deadline` that of a lease that begins or ran out, or nil.
local function append_of(move, id, job, source, deadline)
  local event = new_event(move)
  add_job(event, id, job, source)
  if LEASE[move] then
    local attempt = COUNTED[move] and job[ATTEMPTS] or job[ATTEMPTS] + 1
    event[EVENT_DELIVERY], event[EVENT_ATTEMPT] = job[DELIVERY], attempt
    event[EVENT_FENCE], event[EVENT_WORKER], event[EVENT_DEADLINE] = job[FENCE], job[WORKER], deadline
  end
  if job[STATE] == 'delayed' then event[EVENT_VISIBLE_AT] = job[VISIBLE_AT] end
  if FAULT[move] or job[STATE] == 'cancelled' then
    add_fault(event, job)
  elseif move == 'snooze' and job[EXTRA] and job[EXTRA].unhandled_since then
    event[EVENT_REASON] = job[REASON]
  end
  append(event)
end

local function append_enqueue(id, job, max_attempts)
  local event = new_event('enqueue')
  add_job(event, id, job, false)
  event[EVENT_MAX_ATTEMPTS] = max_attempts
  if job[STATE] == 'delayed' then event[EVENT_VISIBLE_AT] = job[VISIBLE_AT] end
  if job[IDEMPOTENCY_KEY] then event[EVENT_IDEMPOTENCY_KEY] = job[IDEMPOTENCY_KEY] end
  local extra = job[EXTRA]
  if extra then
    local parent = extra.parents and extra.parents[1]
    event[EVENT_PARENT] = parent and parent[REF_QUEUE] .. '/' .. parent[REF_ID] or false
    event[EVENT_SCHEDULE], event[EVENT_INSTANT] = extra.schedule or false, extra.instant or false
  end
  append(event)
end

-- The event of a job that an operator deleted.
local function append_deletion(reason, id, job)
  local event = new_event('delete')
  add_job(event, id, job, job[STATE])
  event[EVENT_VERSION], event[EVENT_TARGET] = job[VERSION] + 1, false
  event[EVENT_VISIBLE_AT] = job[STATE] == 'delayed' and job[VISIBLE_AT]
  if job[STATE] == 'cancelled' then add_fault(event, job) end
  event[EVENT_REASON] = reason
  append(event)
end

-- One event for all jobs that a call removed.
local function append_removal(move, reason, ids)
  local event = new_event(move)
  event[EVENT_REASON], event[EVENT_JOBS] = reason, ids
  append(event)
end
