-- include: outcomes
-- Most jobs come with nothing special and wait at once. What the records and events of such jobs share is packed once for
-- a call; for each of them, the parts are joined as a packer would write the whole. What never changes stands here packed:
-- false as \194, numbers below 128 as themselves, a short text behind 160 and its length, an array behind \220 and its length.
local pack, format, NO = cmsgpack.pack, string.format, '\194'
local AT, SCORE = pack(now), score(now)
local RECORD = '\220\0\29\167pending\1' -- 29 values
-- From the drive to what settled it.
local UNTOUCHED = '\1\0\0\0' .. string.rep(NO, 12) .. AT
local EVENT = '\1\167enqueue' .. AT -- 12 values, or 22 with an idempotency key
local ENTERED = '\1\1\194\167pending'
local UP_TO_KEY = string.rep(NO, 9)
-- A call of `gather` for each of these would be felt.
local records, payloads, jobs = gathered(set, RECORDS), gathered(set, PAYLOADS), gathered(added, JOBS)

-- What all jobs of one sort have in common; see enqueue.lua.
local function parts_of(sort)
  local task, priority, options, max_attempts, retention_ms, key_held_ms = unpack(sort, 1, 6)
  sort.parts = {
    pack(task), pack(priority), pack(retention_ms), pack(key_held_ms), pack(options) .. NO, pack(max_attempts),
  }
  if not has_keys then sort.line = gathered(pushed, list_of(nil, priority)) end
  return sort.parts
end

-- The same as a record and its event made by append_enqueue and enter, for a pending job without extra.
local function enter_fresh(id, nonce, sort, idempotency_key, key, payload)
  local parts = sort.parts or parts_of(sort)
  local its_task, its_tier = parts[1], parts[2]
  local its_key = key and pack(key) or NO
  local width, up_to, named, holds = '\156', '', '', NO
  if idempotency_key then
    holds = pack(idempotency_key)
    width, up_to, named = '\220\0\22', UP_TO_KEY, holds
  end
  append_packed(
    width .. EVENT .. head_of(id) .. id .. ENTERED .. its_task .. its_key .. its_tier .. parts[6]
    .. up_to .. named
  )
  local line = sort.line
  if line then
    local last = line.length + 1
    line[last], line.length = format('%d %s', seq, id), last
    waiting_here = waiting_here + 1
  else
    push(id, sort[2], key, seq)
  end
  local record = RECORD .. pack(seq) .. its_task .. its_tier .. its_key .. UNTOUCHED
    .. parts[3] .. holds .. parts[4] .. head_of(nonce) .. nonce .. parts[5]
  loaded[id] = record
  local last = records.length + 2
  records[last - 1], records[last], records.length = id, record, last
  last = payloads.length + 2
  payloads[last - 1], payloads[last], payloads.length = id, payload, last
  last = jobs.length + 2
  jobs[last - 1], jobs[last], jobs.length = SCORE, id, last
end
