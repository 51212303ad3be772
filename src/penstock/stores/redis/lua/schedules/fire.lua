-- Take in the jobs of an instant and move its schedule on.
-- Arguments: the jobs as in enqueue.lua; name; the instant; the next one or nothing; the last one or nothing; then the payloads.
-- Result: 1; 0 when the schedule is not, or no longer, due at this instant, or the queue cannot take all jobs in.
-- include: enqueue
local given, name = cmsgpack.unpack(ARGV[1]), ARGV[2]
local sorts, items = given[1], given[2]
local packed = redis.call('HGET', SCHEDULES, name)
local schedule = packed and cmsgpack.unpack(packed)
if not schedule or schedule[3] or schedule[1] ~= tonumber(ARGV[3]) then return 0 end
if #items > 0 and room() < #items / WIDTH then return 0 end
for at = WIDTH, #items, WIDTH do
  if has_keys and not (items[at] and items[at][3]) then return 0 end
end
enqueue_all(sorts, items, nil, 6, false)
local next_at = tonumber(ARGV[4]) or false
gather(set, SCHEDULES, name, cmsgpack.pack({next_at, tonumber(ARGV[5]) or false, false}))
if next_at then gather(added, DUE, next_at, name) else gather(removed, DUE, name) end
ring_for('pending')
return finish(1)
