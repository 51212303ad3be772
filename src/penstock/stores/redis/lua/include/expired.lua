-- The leases that ran out, oldest first, each as its id and record.
local function expired_leases(limit, lease_limit_ms)
  local ids = redis.call('ZRANGE', ACTIVE, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit)
  if #ids < limit then
    -- One that ends later than any lease may is a clock fault.
    local far = '(' .. int(now + lease_limit_ms)
    local late = redis.call('ZRANGE', ACTIVE, far, '+inf', 'BYSCORE', 'LIMIT', 0, limit - #ids)
    for _, id in ipairs(late) do ids[#ids + 1] = id end
  end
  local out = {}
  for i, id in ipairs(ids) do
    out[2 * i - 1], out[2 * i] = id, redis.call('HGET', RECORDS, id)
  end
  return out
end
