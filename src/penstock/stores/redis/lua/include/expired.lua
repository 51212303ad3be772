-- include: time
-- The leases that ran out, oldest first, with what is needed to decide about them.
local LEASE_FACTS = {'token', 'fence', 'attempts', 'options', 'worker', 'last_delay_ms'}

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
    local facts = redis.call('HMGET', JOB .. id, unpack(LEASE_FACTS))
    table.insert(facts, 1, id)
    out[i] = facts
  end
  return out
end
