-- include: time
-- The event log: numbered without gaps, written by the script that makes the move. The fields are those of
-- core/events.py as one msgpack map; what every event of the queue shares is left to the reader.
local seq = tonumber(last_seq)

local LEASE = {
  claim = true, progress = true, complete = true, fail = true, retry = true, bury = true, snooze = true,
  release = true, expire = true,
}
local DELETED = 'DELETED'
local COUNTED = {retry = true, bury = true, expire = true}
local FAULT = {fail = true, retry = true, bury = true, expire = true, cancel = true}

local function append(move, event)
  seq = seq + 1
  event.v, event.move, event.at = 1, move, now
  redis.call('XADD', EVENTS, int(seq) .. '-0', 'event', cmsgpack.pack(event))
end

-- `job` is the record after the move, which it left in `state`.
local function append_of(move, id, job, source, state)
  local event = {
    job = id, version = job.version, drive = job.drive, from = source, to = state, task = job.task,
    key = job.key, priority = job.priority,
  }
  if move == 'enqueue' then event.idempotency_key, event.max_attempts = job.idempotency_key, job.max_attempts end
  if LEASE[move] then
    event.delivery, event.fence, event.worker = job.delivery, job.fence, job.worker
    event.attempt = COUNTED[move] and job.attempts or job.attempts + 1
  end
  if move == 'claim' then event.deadline = job.deadline end
  if state == 'delayed' then event.visible_at = job.visible_at end
  if FAULT[move] or state == 'cancelled' then
    event.reason, event.error, event.fingerprint = job.reason, job.error, job.fingerprint
  end
  if move == 'delete' then event.to, event.reason = nil, DELETED end
  append(move, event)
end
