-- include: shared/runs
-- What a call writes is gathered while it looks and decides, and written at its end: a script that fails before has
-- changed nothing, and a hundred jobs are one command for each index instead of a hundred.
local set, unset, added, removed, pushed, pushed_front, popped = {}, {}, {}, {}, {}, {}, {}
local relay_entries, meta_updates = {}, {}

-- Lists carry their length: asking Lua for it would search.
local function gathered(into, key)
  local list = into[key]
  if not list then
    list = {length = 0}
    into[key] = list
  end
  return list
end

local function gather(into, key, one, other)
  local list = into[key] or gathered(into, key)
  local length = list.length + 1
  list[length] = one
  if other then
    length = length + 1
    list[length] = other
  end
  list.length = length
end

local function run(command, lists)
  for key, list in pairs(lists) do
    for first = 1, list.length, COMMAND_VALUES do
      redis.call(command, key, unpack(list, first, math.min(first + COMMAND_VALUES - 1, list.length)))
    end
  end
end

-- Members of sorted sets never come back under the same name within a call: what was added may be removed, not
-- the other way round.
local function write_all()
  write_runs()
  for _, entry in ipairs(relay_entries) do redis.call('XADD', RELAYS, unpack(entry)) end
  for list, count in pairs(popped) do redis.call('LPOP', list, count) end
  run('HSET', set)
  run('HDEL', unset)
  run('ZADD', added)
  run('ZREM', removed)
  run('RPUSH', pushed)
  run('LPUSH', pushed_front)
  set, unset, added, removed, pushed, pushed_front, popped = {}, {}, {}, {}, {}, {}, {}
  relay_entries = {}
end
