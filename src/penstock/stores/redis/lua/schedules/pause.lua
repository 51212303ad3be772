-- Stop a schedule, or let it go on.
-- Arguments: the name; 1 to pause, 0 to go on.
-- Result: 1; 0 if there is none of that name.
-- flags: allow-oom
-- include: shared/outcomes
local name, paused = ARGV[1], ARGV[2] == '1'
local packed = redis.call('HGET', SCHEDULES, name)
if not packed then return 0 end
local schedule = decode_schedule(packed)
schedule[SCHEDULE_PAUSED] = paused
gather(set, SCHEDULES, name, encode(schedule))
if schedule[SCHEDULE_NEXT_AT] and not paused then
  gather(added, DUE, schedule[SCHEDULE_NEXT_AT], name)
else
  gather(removed, DUE, name)
end
notify_for('pending')
return finish(1)
