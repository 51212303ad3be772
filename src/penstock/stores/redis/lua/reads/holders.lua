-- Which job holds each of some idempotency keys.
-- Arguments: the keys.
-- Result, per key: an empty text where nobody holds it; else the id, the digest of its work and its state, with spaces in
--   between; the state is left out once the record is gone.
-- flags: allow-oom,no-writes
-- include: shared/records
local keys, out = decode(ARGV[1]), {}
local ids, digests, tills = {}, {}, {}
for first = 1, #keys, COMMAND_VALUES do
  local last = math.min(first + COMMAND_VALUES - 1, #keys)
  local held = redis.call('HMGET', HOLDERS, unpack(keys, first, last))
  for at = first, last do
    local id, digest, till = string.match(held[at - first + 1] or '', '^(%S+) (%S+) ?(%S*)')
    till = tonumber(till)
    if id and not (till and till <= now) then ids[at], digests[at], tills[at] = id, digest, till end
  end
end
local wanted = {}
for at = 1, #keys do
  if ids[at] and not tills[at] then wanted[#wanted + 1] = ids[at] end
end
look_up(wanted)
for at = 1, #keys do
  -- Once its record is gone the id may be another job's.
  local state = ids[at] and not tills[at] and state_of(ids[at])
  out[at] = ids[at] and ids[at] .. ' ' .. digests[at] .. (state and ' ' .. state or '') or ''
end
return out
