-- Change a key's own limit or weight.
-- Arguments: the key; its limit and its weight, each as a number, as nothing to leave it, or as 0 to take it back.
-- flags: allow-oom
-- include: shared/outcomes
local function changed(present, named, plain)
  if named == '' then return present end
  return named ~= '0' and tonumber(named) or plain
end

local lane = lane_of(ARGV[1])
lane[LANE_LIMIT], lane[LANE_WEIGHT] = changed(lane[LANE_LIMIT], ARGV[2], false), changed(lane[LANE_WEIGHT], ARGV[3], 1)
touch(ARGV[1])
notify_for('pending')
return finish(redis.status_reply('OK'))
