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
local alike = {}

-- What all jobs of a task, with these options and of this tier, have in common.
local function parts_of(task, priority, options, max_attempts, retention_ms, key_held_ms)
  local by_task = alike[options]
  if not by_task then
    by_task = {}
    alike[options] = by_task
  end
  local by_tier = by_task[task]
  if not by_tier then
    by_tier = {}
    by_task[task] = by_tier
  end
  local parts = by_tier[priority]
  if not parts then
    parts = {
      pack(task), pack(priority), pack(retention_ms), pack(key_held_ms), pack(options) .. NO, pack(max_attempts),
    }
    by_tier[priority] = parts
  end
  return parts
end

-- The same as a record and its event made by append_enqueue and enter, for a pending job without extra.
local function enter_fresh(
  id, nonce, task, priority, idempotency_key, key, options, max_attempts, retention_ms, key_held_ms
)
  local parts = parts_of(task, priority, options, max_attempts, retention_ms, key_held_ms)
  local its_task, its_tier = parts[1], parts[2]
  local its_key = key and pack(key) or NO
  local event = EVENT .. pack(id) .. ENTERED .. its_task .. its_key .. its_tier .. parts[6]
  local holds = NO
  if idempotency_key then
    holds = pack(idempotency_key)
    event = '\220\0\22' .. event .. UP_TO_KEY .. holds
  else
    event = '\156' .. event
  end
  append_packed(event)
  push(id, priority, key, seq)
  packed_here[id] = RECORD .. pack(seq) .. its_task .. its_tier .. its_key .. UNTOUCHED
    .. parts[3] .. holds .. parts[4] .. pack(nonce) .. parts[5]
  loaded[id] = nil
  gather(set, RECORDS, id, packed_here[id])
end
