-- include: shared/leases
-- The fast form of what codec.lua, events.lua and records.lua do plainly, for claim and complete: the moves that every job
-- makes. A table of 29 values that is packed again, and a string for each value of an event, is most of what such a move
-- costs. So these moves take the first values off the packed record, carry the bytes behind them along, join values that
-- were packed once for the call, and add their events to the run of those before. A test holds what they write equal to
-- the plain form, byte by byte.
local NO = '\194' -- false
local LONG = '\220\0' -- an array with its length in one more byte

-- Each value as it is packed: made when it is first asked for, found without a call from then on. Never asked for nil.
local packed = setmetatable({}, {__index = function(known, value)
  local text = encode(value)
  known[value] = text
  return text
end})

-- What stands before a packed text of a length.
local heads = setmetatable({}, {__index = function(known, length)
  local head = string.sub(encode(string.rep(' ', length)), 1, -length - 1)
  known[length] = head
  return head
end})

-- Of the record that was looked at last: its first values, in a table that the next job of the call gets too; the record;
-- how many values there are in the table, and the offsets of their end and of that of EXTRA, where it is known.
local head, head_record, head_last, head_end, extra_end = {}, nil, 0, 0, nil

-- The values of a record up to `last`, at most SETTLED; false if there is no record, or none that can be read.
local function load_head(id, last)
  local record, job, is_sound = packed_record(id), head, false
  if not record then return false end
  is_sound, head_end, job[STATE], job[VERSION], job[PLACE], job[TASK], job[PRIORITY], job[KEY], job[DRIVE],
    job[DELIVERY], job[ATTEMPTS], job[FENCE], job[TOKEN], job[DEADLINE], job[WORKER], job[CANCEL_REQUESTED],
    job[VISIBLE_AT], job[LAST_DELAY_MS], job[REASON], job[ERROR], job[FINGERPRINT], job[ENDED_AT],
    job[PROGRESS_AT], job[SETTLED] = pcall(cmsgpack.unpack_limit, record, last, 3)
  local key = job[KEY]
  if not is_sound or not job[TASK] or type(key) ~= 'string' and (key ~= false or has_keys and not ENDS[job[STATE]])
    or not pcall(sum, job[VERSION], job[PLACE], job[PRIORITY], job[DRIVE], job[DELIVERY], job[ATTEMPTS], job[FENCE])
  then
    return set_aside(id, UNREADABLE, record)
  end
  head_record, head_last, extra_end = record, last, nil
  return job
end

-- The same up to SETTLED, with what the end of a job needs of the values behind.
local function load_packed(id)
  local job = load_head(id, SETTLED)
  if not job then return false end
  local is_sound, _
  is_sound, extra_end, _, job[RETENTION_MS], _, _, _, _, job[EXTRA] =
    pcall(cmsgpack.unpack_limit, head_record, EXTRA - SETTLED, head_end)
  if not is_sound or type(job[RETENTION_MS]) ~= 'number' or job[EXTRA] and type(job[EXTRA]) ~= 'table' then
    return set_aside(id, UNREADABLE, head_record)
  end
  return job
end

-- How many values the record has after the move, those behind its head up to EXTRA, and those behind the lease.
local function rest_of_record(lease_ms)
  local values = string.byte(head_record, 3)
  if values < LEASE_MS then return lease_ms and LEASE_MS or EXTRA, string.sub(head_record, head_end + 1), '' end
  local stop = extra_end or cmsgpack.unpack_limit(head_record, EXTRA - head_last, head_end)
  local rest = string.sub(head_record, head_end + 1, stop)
  if values == LEASE_MS then return lease_ms and LEASE_MS or EXTRA, rest, '' end
  -- Values that a later version added.
  local later = string.sub(head_record, cmsgpack.unpack_one(head_record, stop) + 1)
  return values, rest, lease_ms and later or NO .. later
end

local function save_packed(id, record)
  loaded[id], changed[id] = record, nil
  gather(set, RECORDS, id, record)
  return record
end

-- The event of a claim or a completion: nearly always like the one before it, but for its job.
local function append_like(move, id, job, source, deadline)
  local shared = last_run and last_run.fast == move and last_run.count < RUN_LENGTH and last_run.shared
  if shared and shared[EVENT_VERSION] == job[VERSION] and shared[EVENT_DRIVE] == job[DRIVE]
    and shared[EVENT_TASK] == job[TASK] and shared[EVENT_PRIORITY] == job[PRIORITY]
    and shared[EVENT_DELIVERY] == job[DELIVERY] and shared[EVENT_ATTEMPT] == job[ATTEMPTS] + 1
    and shared[EVENT_WORKER] == job[WORKER] and shared[EVENT_DEADLINE] == deadline
  then
    join_run(id)
    vary_field(EVENT_KEY, job[KEY])
    return vary_field(EVENT_FENCE, job[FENCE])
  end
  append_of(move, id, job, source, deadline)
  if last_run.count == 1 then last_run.fast = move end
end

-- Write the record of the job whose head this is, as a claim has left it, and the claim's event.
local function save_leased(id, job, lease_ms)
  local version, drive, task, key = packed[job[VERSION]], packed[job[DRIVE]], packed[job[TASK]], packed[job[KEY]]
  local tier, delivery, fence = packed[job[PRIORITY]], packed[job[DELIVERY]], packed[job[FENCE]]
  local worker, deadline, token = packed[job[WORKER]], packed[job[DEADLINE]], job[TOKEN]
  append_like('claim', id, job, 'pending', job[DEADLINE])
  local values, rest, later = rest_of_record(lease_ms)
  local record = LONG .. string.char(values) .. packed.active .. version .. encode(job[PLACE]) .. task .. tier .. key .. drive
    .. delivery .. packed[job[ATTEMPTS]] .. fence .. heads[#token] .. token .. deadline .. worker .. rest .. packed[lease_ms]
    .. later
  return save_packed(id, record)
end

-- The same of a job that was completed.
local function save_completed(id, job)
  local version, drive, task, key = packed[job[VERSION]], packed[job[DRIVE]], packed[job[TASK]], packed[job[KEY]]
  local tier, delivery, fence, worker = packed[job[PRIORITY]], packed[job[DELIVERY]], packed[job[FENCE]], packed[job[WORKER]]
  local notes = job[SETTLED]
  append_like('complete', id, job, 'active')
  local values, rest, later = rest_of_record()
  local record = LONG .. string.char(values) .. packed.completed .. version .. encode(job[PLACE]) .. task .. tier .. key
    .. drive .. delivery .. packed[job[ATTEMPTS]] .. fence .. NO .. NO .. worker .. packed[job[CANCEL_REQUESTED]]
    .. NO .. packed[job[LAST_DELAY_MS]] .. NO .. NO .. NO .. packed[now] .. packed[job[PROGRESS_AT]]
    .. heads[#notes] .. notes .. rest .. later
  return save_packed(id, record)
end
