-- include: shared/codec
-- The event log in runs: an entry of the stream has the events of a call, one after another, that are alike but for their
-- jobs. What they share stands once; ids are joined; a field that differs is an array. `docs/decisions/0020` says why.
local runs, last_run = {}, false -- of this call, and the last of them

-- Begin a run with this event; its table is the run's from now on.
local function begin_run(event)
  last_run = {first = seq, count = 1, shared = event, ids = {event[EVENT_JOB]}, columns = false, fast = false}
  runs[#runs + 1] = last_run
end

-- A field of the newest event of the run that differs from what the others have: from now on all have their own.
local function add_column(field, value)
  local column, same = {}, last_run.shared[field] or false
  for at = 1, last_run.count - 1 do column[at] = same end
  column[last_run.count] = value
  last_run.columns = last_run.columns or {}
  last_run.columns[field] = column
end

local function continues_run(event)
  local shared = last_run and last_run.shared
  return shared and last_run.count < RUN_LENGTH and event[EVENT_JOB] and last_run.ids[1]
    and shared[EVENT_MOVE] == event[EVENT_MOVE] and shared[EVENT_AT] == event[EVENT_AT]
    and shared[EVENT_SOURCE] == event[EVENT_SOURCE] and shared[EVENT_TARGET] == event[EVENT_TARGET]
end

-- Write an event. The table may become a run's: callers make one for each event.
local function append(event)
  seq = seq + 1
  if not continues_run(event) then return begin_run(event) end
  local count = last_run.count + 1
  last_run.count, last_run.ids[count], last_run.fast = count, event[EVENT_JOB], false
  local shared, columns = last_run.shared, last_run.columns
  for field = EVENT_VERSION, LAST_OF_EVENT do
    local value = event[field] or false
    local column = columns and columns[field]
    if column then
      column[count] = value
    elseif value ~= (shared[field] or false) then
      add_column(field, value)
      columns = last_run.columns
    end
  end
end

-- Add an event to the run that differs from its first one in its job at most, and in what the caller names by `vary_field`.
local function join_run(id)
  seq = seq + 1
  local count = last_run.count + 1
  last_run.count, last_run.ids[count] = count, id
end

local function vary_field(field, value)
  local column = last_run.columns and last_run.columns[field]
  if column then
    column[last_run.count] = value
  elseif value ~= (last_run.shared[field] or false) then
    add_column(field, value)
  end
end

local function packed_run(each)
  local ids, shared = each.ids, each.shared
  shared[EVENT_JOB] = false
  local columns = each.columns
  for field in pairs(columns or {}) do shared[field] = false end
  local body = '\148' .. encode_event(shared) .. encode(each.count, ids[1] and table.concat(ids, ' ') or false, columns)
  return string.sub(redis.sha1hex(body), 1, CHECKSUM_LENGTH) .. body
end

local function write_runs()
  -- Once for every entry: what is looked up by name each time would be felt.
  local call, format, log = redis.call, string.format, EVENTS
  for _, each in ipairs(runs) do call('XADD', log, format('%d-0', each.first), 'r', packed_run(each)) end
  runs, last_run = {}, false
end
