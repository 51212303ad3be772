-- Forget what was set aside; of jobs that the log knows there is an event.
-- Arguments: the reason that the event gives; then the ids.
-- Result: how many were forgotten.
-- flags: allow-oom
-- include: outcomes

local gone, count = {}, 0
for at = 2, #ARGV do
  local id = ARGV[at]
  local entry = redis.call('HGET', QUARANTINE, id)
  if entry then
    count = count + 1
    gather(unset, QUARANTINE, id)
    -- The id may be another job's by now.
    if string.match(entry, '^%d+ %d+ 1 ') and not found(id) then gone[#gone + 1] = id end
  end
end
if #gone > 0 then append_removal('delete', ARGV[1], gone) end
return finish(count)
