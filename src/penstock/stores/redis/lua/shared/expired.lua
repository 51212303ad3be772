-- include: shared/codec
-- The leases that ran out, oldest first, each as its id and record.
local function expired_leases(limit, lease_limit_ms)
  local ids = redis.call('ZRANGE', ACTIVE, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit)
  local out = {}
  for i, id in ipairs(ids) do
    out[2 * i - 1], out[2 * i] = id, redis.call('HGET', RECORDS, id)
  end
  if is_stepped and #ids < limit then
    -- Those that lie further ahead than they were claimed for.
    local far = redis.call('ZRANGE', ACTIVE, '(' .. int(now + CLOCK_STEP_MS), '+inf', 'BYSCORE', 'WITHSCORES')
    for i = 1, #far, 2 do
      local record = redis.call('HGET', RECORDS, far[i])
      local job = record and decode(record)
      if job and tonumber(far[i + 1]) > now + (job[LEASE_MS] or lease_limit_ms) + CLOCK_STEP_MS then
        out[#out + 1] = far[i]
        out[#out + 1] = record
      end
      if #out >= 2 * limit then break end
    end
  end
  return out
end
