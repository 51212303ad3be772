-- include: shared/records
-- What is answered for each item, and what is written and notified once for the whole call.
local topics = {}

local function notify_for(state)
  if state == 'pending' or state == 'delayed' then
    topics.ready = true
  elseif state ~= 'active' and state ~= 'blocked' then
    topics.ended = true
    -- Where claims are limited, an ending lets the next job go.
    if meta[META_DECLARED] then topics.ready = true end
  end
end

local function refuse(why, state) return 'refused/' .. why .. '/' .. (state or '') end

local function applied(state, cancel) return 'applied/' .. state .. (cancel and '/cancel' or '') end

-- Call it last, with the answer: everything is written here.
local function finish(answer)
  refresh_touched()
  write_lanes()
  for id, job in pairs(changed) do gather(set, RECORDS, id, encode(job)) end
  if seq ~= tonumber(meta[META_SEQ]) then meta_updates.seq, meta_updates.last_us = seq, now_us end
  if now_us < last_us then meta_updates.last_us, meta_updates.step_at, meta_updates.step_back_ms = now_us, now, newest_ms - now end
  for name, value in pairs(meta_updates) do gather(set, META, name, value) end
  write_all()
  for topic in pairs(topics) do redis.call('PUBLISH', CHANNEL .. topic, '') end
  return answer
end

-- Answer a list of items, each an array of up to `width` values with the id of its job at place `at`.
local function answer_each(packed, width, at, answer)
  local items, ids, out = decode(packed), {}, {}
  for i, item in ipairs(items) do ids[i] = item[at] end
  look_up(ids)
  for i, item in ipairs(items) do out[i] = answer(unpack(item, 1, width)) end
  return finish(out)
end
