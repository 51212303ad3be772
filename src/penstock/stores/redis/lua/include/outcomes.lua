-- include: records
-- What is answered for each item, and what is written and rung once for the whole call.
local rings = {}

local function ring_for(state)
  if state == 'pending' or state == 'delayed' then
    rings.ready = true
  elseif state ~= 'active' and state ~= 'blocked' then
    rings.ended = true
    -- Where claims are limited, an ending lets the next job go.
    if meta[7] then rings.ready = true end
  end
end

local function refuse(why, state) return 'refused/' .. why .. '/' .. (state or '') end

local function applied(state, cancel) return 'applied/' .. state .. (cancel and '/cancel' or '') end

-- Call it last, with the answer: everything is written here.
local function finish(answer)
  refresh_touched()
  write_lanes()
  -- No claim stands where there may be something to claim.
  if rings.ready and meta[14] and meta[14] ~= '' then facts.standing = '' end
  for id, job in pairs(changed) do gather(set, RECORDS, id, cmsgpack.pack(job)) end
  if seq ~= tonumber(meta[2]) then facts.seq, facts.last_us = seq, now_us end
  if now_us < last_us then facts.last_us, facts.step_at, facts.step_back_ms = now_us, now, newest_ms - now end
  for name, value in pairs(facts) do gather(set, META, name, value) end
  write_all()
  for topic in pairs(rings) do redis.call('PUBLISH', BELL .. topic, '') end
  return answer
end

-- Answer a list of items, each an array of up to `width` values with the id of its job at place `at`.
local function answer_each(packed, width, at, answer)
  local items, ids, out = cmsgpack.unpack(packed), {}, {}
  for i, item in ipairs(items) do ids[i] = item[at] end
  look_up(ids)
  for i, item in ipairs(items) do out[i] = answer(unpack(item, 1, width)) end
  return finish(out)
end
