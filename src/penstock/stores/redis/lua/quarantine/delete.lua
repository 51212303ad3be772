-- Forget what was set aside; of jobs that the log knows there is an event.
-- Arguments: the reason that the event gives; then the ids.
-- Result: how many were forgotten.
-- flags: allow-oom
-- include: shared/outcomes

local reason = ARGV[1]
local gone, count = {}, 0

-- The idempotency key stays until its time, where it can be read.
local function free_key(id, entry)
  local length, _, record = string.match(entry, '^%d+ %d+ %d (%-?%d+) (%-?%d+)\n[^\n]*\n(.*)$')
  local is_read, job = pcall(decode, string.sub(record or '', 1, math.max(0, tonumber(length or 0))))
  local key = is_read and type(job) == 'table' and job[IDEMPOTENCY_KEY]
  local held = type(key) == 'string' and redis.call('HGET', HOLDERS, key)
  local holder, digest = string.match(held or '', '^(%S+) (%S+)$')
  if holder ~= id then return end
  local till = now + (tonumber(job[KEY_HELD_MS]) or 0)
  gather(set, HOLDERS, key, id .. ' ' .. digest .. ' ' .. int(till))
  gather(added, FREED, till, key)
end

for at = 2, #ARGV do
  local id = ARGV[at]
  local entry = redis.call('HGET', QUARANTINE, id)
  if entry then
    count = count + 1
    gather(unset, QUARANTINE, id)
    if not found(id) then free_key(id, entry) end
    -- The id may be another job's by now.
    if string.match(entry, '^%d+ %d+ 1 ') and not found(id) then gone[#gone + 1] = id end
  end
end
if #gone > 0 then append_removal('delete', reason, gone) end
return finish(count)
