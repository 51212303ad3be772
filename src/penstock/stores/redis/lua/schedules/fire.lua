-- Take in the jobs of an instant and move its schedule on.
-- Arguments: the jobs as in enqueue.lua; name; the instant; the next one or nothing; the last one or nothing; then the payloads.
-- Result: 1; 0 when the schedule is not, or no longer, due at this instant, or the queue cannot take all jobs in.
-- include: moves/enqueue
local FIRST_PAYLOAD = 6
local request, name, instant = decode(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local next_at, last_at = tonumber(ARGV[4]) or false, tonumber(ARGV[5]) or false
local templates, items = unpack(request, 1, 2)
local packed = redis.call('HGET', SCHEDULES, name)
local schedule = packed and decode_schedule(packed)
if not schedule or schedule[SCHEDULE_PAUSED] or schedule[SCHEDULE_NEXT_AT] ~= instant then return 0 end
if #items > 0 and room() < #items / ITEM_WIDTH then return 0 end
for at = 0, #items - 1, ITEM_WIDTH do
  if has_keys and not key_of_item(items, at) then return 0 end
end
enqueue_all(templates, items, nil, FIRST_PAYLOAD, false)
gather(set, SCHEDULES, name, encode_schedule(next_at, last_at, false))
if next_at then gather(added, DUE, next_at, name) else gather(removed, DUE, name) end
notify_for('pending')
return finish(1)
