-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Arguments: the jobs, each as id, nonce, task, priority, delay_ms, run_at or nil, idempotency key or nil, digest,
--   key or nil, options, max_attempts, retention_ms, key_held_ms; then their payloads, one argument each.
-- Result, per job: created/<state>; or the id, state or '', and 1 or 0 for the same payload, of the job that holds
--   its idempotency key.
-- Refusals: duplicate, when the id is another job's.
-- include: outcomes

-- Who holds the key now, and for which work; a key whose time is over is nobody's.
local function holder_of(key)
  local held = redis.call('HGET', HOLDERS, key)
  if not held then return nil end
  local id, digest, till = string.match(held, '^(%S+) (%S+) ?(%S*)')
  till = tonumber(till)
  if till and till <= now then return nil end
  -- Once its record is gone the id may be another job's.
  return id, digest, not till and redis.call('HGET', JOB .. id, 'state') or nil
end

local function enqueue(
  payload, id, nonce, task, priority, delay_ms, run_at, idempotency_key, digest, key, options, max_attempts,
  retention_ms, key_held_ms
)
  local state, known = unpack(redis.call('HMGET', JOB .. id, 'state', 'nonce'))
  if state and known ~= nonce then return refuse('duplicate', state) end
  if state then return 'created/' .. state end
  if idempotency_key then
    local holder, worth, holder_state = holder_of(idempotency_key)
    if holder then return {holder, holder_state or '', worth == digest and 1 or 0} end
  end

  local visible_at = run_at or now + delay_ms
  local waits = visible_at > now
  local job = {
    state = waits and 'delayed' or 'pending', nonce = nonce, task = task, payload = payload, priority = priority,
    options = options, enqueued_at = now, version = 1, drive = 1, delivery = 0, attempts = 0, fence = 0,
    visible_at = waits and visible_at or nil, idempotency_key = idempotency_key, key = key,
    retention_ms = retention_ms, key_held_ms = key_held_ms, max_attempts = max_attempts,
  }
  append_of('enqueue', id, job, nil, job.state)
  job.place, job.max_attempts = enter(id, job, job.state), nil
  write(id, job)
  redis.call('ZADD', JOBS, now, id)
  if idempotency_key then
    redis.call('HSET', HOLDERS, idempotency_key, id .. ' ' .. digest)
    redis.call('ZREM', FREED, idempotency_key)
  end
  ring_for(job.state)
  return 'created/' .. job.state
end

local out = {}
for i, item in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = enqueue(ARGV[1 + i], unpack(item, 1, 13)) end
return finish(out)
