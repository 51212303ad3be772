-- include: outcomes
-- How a record goes.
local REMOVED = {
  'state', 'version', 'drive', 'task', 'key', 'priority', 'place', 'visible_at', 'ended_at', 'retention_ms',
  'key_held_ms', 'idempotency_key', 'reason', 'error', 'fingerprint',
}

-- Take the record away. Its idempotency key stays until its time, if it still is this job's.
local function remove(id, job)
  leave(id, job)
  redis.call('DEL', JOB .. id)
  redis.call('ZREM', JOBS, id)
  local key = job.idempotency_key
  local held = key and redis.call('HGET', HOLDERS, key)
  local holder, digest = string.match(held or '', '^(%S+) (%S+)')
  if holder == id then
    local till = now + job.key_held_ms
    redis.call('HSET', HOLDERS, key, id .. ' ' .. digest .. ' ' .. int(till))
    redis.call('ZADD', FREED, till, key)
  end
end
