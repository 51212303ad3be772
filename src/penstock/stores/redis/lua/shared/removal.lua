-- include: shared/relays
-- How a record goes.

-- Take the record away. Its idempotency key stays until its time, if it still is this job's, and so does the window
-- of its kind.
local function remove(id, job)
  leave(id, job)
  loaded[id] = false
  gather(unset, RECORDS, id)
  gather(unset, PAYLOADS, id)
  gather(unset, RESULTS, id)
  gather(unset, PROGRESS, id)
  gather(unset, ERRORS, id)
  gather(removed, JOBS, id)
  if job[IDEMPOTENCY_KEY] then
    local held = redis.call('HGET', HOLDERS, job[IDEMPOTENCY_KEY])
    local holder, digest = string.match(held or '', '^(%S+) (%S+)')
    if holder == id then
      local till = now + job[KEY_HELD_MS]
      gather(set, HOLDERS, job[IDEMPOTENCY_KEY], id .. ' ' .. digest .. ' ' .. int(till))
      gather(added, FREED, till, job[IDEMPOTENCY_KEY])
    end
  end
  local extra = job[EXTRA]
  if not extra then return end
  if extra.unique then gather(added, WINDOWS, now + extra.unique[UNIQUE_WINDOW_MS], extra.unique[UNIQUE_KEY]) end
  redis.call('UNLINK', CHILDREN .. id, OUTCOMES .. id)
  -- One that ended well was counted; any other might have been redriven, and now will not be.
  if job[STATE] ~= 'completed' then tell_parents(id, job[EXTRA], false) end
end
