-- Stop a schedule, or let it go on.
-- Arguments: the name; 1 to pause, 0 to go on.
-- Result: 1; 0 if there is none of that name.
-- flags: allow-oom
-- include: outcomes
local packed = redis.call('HGET', SCHEDULES, ARGV[1])
if not packed then return 0 end
local schedule = cmsgpack.unpack(packed)
schedule[3] = ARGV[2] == '1'
gather(set, SCHEDULES, ARGV[1], cmsgpack.pack(schedule))
if schedule[1] and not schedule[3] then
  gather(added, DUE, schedule[1], ARGV[1])
else
  gather(removed, DUE, ARGV[1])
end
ring_for('pending')
return finish(1)
