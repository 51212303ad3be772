-- include: shared/packed
-- Most jobs come with nothing special and wait at once. What the records and events of such jobs share is packed once for
-- a call; for each of them, the parts are joined as the codec would pack the whole. A test holds the two equal.
local format = string.format
local AT, SCORE = encode(now), score(now)
local RECORD = LONG .. string.char(EXTRA) .. encode('pending', 1)
-- From the drive to what settled it.
local UNTOUCHED = encode(1, 0, 0, 0) .. string.rep(NO, SETTLED - FENCE) .. AT
-- A call of `gather` for each of these would be felt.
local records, payloads, jobs = gathered(set, RECORDS), gathered(set, PAYLOADS), gathered(added, JOBS)

-- What the records and events of all jobs of one template have in common.
local function parts_of(template)
  template.parts = {
    task = encode(template[TEMPLATE_TASK]),
    tier = encode(template[TEMPLATE_PRIORITY]),
    retention_ms = encode(template[TEMPLATE_RETENTION_MS]),
    key_held_ms = encode(template[TEMPLATE_KEY_HELD_MS]),
    options_and_extra = encode(template[TEMPLATE_OPTIONS], false),
  }
  if not has_keys then template.line = gathered(pushed, list_of(nil, template[TEMPLATE_PRIORITY])) end
  return template.parts
end

local function append_fresh(id, template, idempotency_key, key)
  local shared = last_run and last_run.fast == 'enqueue' and last_run.count < RUN_LENGTH and last_run.shared
  if shared and shared[EVENT_TASK] == template[TEMPLATE_TASK] and shared[EVENT_PRIORITY] == template[TEMPLATE_PRIORITY]
    and shared[EVENT_MAX_ATTEMPTS] == template[TEMPLATE_MAX_ATTEMPTS]
  then
    join_run(id)
    local columns = last_run.columns
    if columns or (key or false) ~= shared[EVENT_KEY] then vary_field(EVENT_KEY, key or false) end
    if columns or (idempotency_key or nil) ~= shared[EVENT_IDEMPOTENCY_KEY] then
      vary_field(EVENT_IDEMPOTENCY_KEY, idempotency_key or false)
    end
    return
  end
  local event = new_event('enqueue')
  event[EVENT_JOB], event[EVENT_VERSION], event[EVENT_DRIVE], event[EVENT_SOURCE] = id, 1, 1, false
  event[EVENT_TARGET], event[EVENT_TASK], event[EVENT_KEY] = 'pending', template[TEMPLATE_TASK], key or false
  event[EVENT_PRIORITY], event[EVENT_MAX_ATTEMPTS] = template[TEMPLATE_PRIORITY], template[TEMPLATE_MAX_ATTEMPTS]
  event[EVENT_IDEMPOTENCY_KEY] = idempotency_key or nil
  append(event)
  if last_run.count == 1 then last_run.fast = 'enqueue' end
end

-- The same as a record and its event made by new_record, append_enqueue and enter, for a pending job without extra.
local function enter_fresh(id, nonce, template, idempotency_key, key, payload)
  local parts = template.parts or parts_of(template)
  local task, tier, its_key, held_key = parts.task, parts.tier, key and encode(key) or NO, NO
  if idempotency_key then held_key = encode(idempotency_key) end
  append_fresh(id, template, idempotency_key, key)
  local line = template.line
  if line then
    local last = line.length + 1
    line[last], line.length = format('%d %s', seq, id), last
    waiting_here = waiting_here + 1
  else
    push(id, template[TEMPLATE_PRIORITY], key, seq)
  end
  local record = RECORD .. encode(seq) .. task .. tier .. its_key .. UNTOUCHED .. parts.retention_ms .. held_key
    .. parts.key_held_ms .. heads[#nonce] .. nonce .. parts.options_and_extra
  loaded[id] = record
  local last = records.length + 2
  records[last - 1], records[last], records.length = id, record, last
  last = payloads.length + 2
  payloads[last - 1], payloads[last], payloads.length = id, payload, last
  last = jobs.length + 2
  jobs[last - 1], jobs[last], jobs.length = SCORE, id, last
end
