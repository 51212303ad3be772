-- include: outcomes
-- Most jobs come with nothing special and wait at once. What the records and events of such jobs share is packed once for
-- a call; for each of them, the parts are joined as a packer would write the whole.
local pack, NO = cmsgpack.pack, cmsgpack.pack(false)
local AT = pack(now)
local RECORD = '\220\0\29' .. pack('pending') .. pack(1) -- 29 values
-- From the drive to what settled it.
local UNTOUCHED = pack(1) .. string.rep(pack(0), 3) .. string.rep(NO, 12) .. AT
local EVENT = pack(1) .. pack('enqueue') .. AT -- 12 values, or 22 with an idempotency key
local ENTERED = pack(1) .. pack(1) .. NO .. pack('pending')
local UP_TO_KEY = string.rep(NO, 9)
local heads = {}

-- What stands before a text that is packed: it depends on nothing but the length.
local function head_of(text)
  local head = heads[#text]
  if not head then
    head = string.sub(pack(text), 1, -#text - 1)
    heads[#text] = head
  end
  return head
end

-- What all jobs of one sort have in common; see enqueue.lua.
local function parts_of(sort)
  local task, priority, options, max_attempts, retention_ms, key_held_ms = unpack(sort, 1, 6)
  sort.parts = {
    pack(task), pack(priority), pack(retention_ms), pack(key_held_ms), pack(options) .. NO, pack(max_attempts),
  }
  return sort.parts
end

-- The same as a record and its event made by append_enqueue and enter, for a pending job without extra.
local function enter_fresh(id, nonce, sort, idempotency_key, key)
  local parts = sort.parts or parts_of(sort)
  local its_task, its_tier = parts[1], parts[2]
  local its_key = key and pack(key) or NO
  local length, up_to, named, holds = '\156', '', '', NO
  if idempotency_key then
    holds = pack(idempotency_key)
    length, up_to, named = '\220\0\22', UP_TO_KEY, holds
  end
  append_packed(
    length .. EVENT .. head_of(id) .. id .. ENTERED .. its_task .. its_key .. its_tier .. parts[6] .. up_to .. named
  )
  push(id, sort[2], key, seq)
  local record = RECORD .. pack(seq) .. its_task .. its_tier .. its_key .. UNTOUCHED
    .. parts[3] .. holds .. parts[4] .. head_of(nonce) .. nonce .. parts[5]
  loaded[id] = record
  gather(set, RECORDS, id, record)
end
