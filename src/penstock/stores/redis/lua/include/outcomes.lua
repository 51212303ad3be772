-- include: records
-- What is answered for each item, and what is written and rung once for the whole call.
local rings = {}

local function ring_for(state)
  rings[(state == 'pending' or state == 'delayed') and 'ready' or 'ended'] = true
end

local function refuse(why, state) return 'refused/' .. why .. '/' .. (state or '') end

local function applied(state, cancel) return 'applied/' .. state .. (cancel and '/cancel' or '') end

-- Call it last, with the answer: the numbers and the time that the next call goes on from are kept here.
local function finish(answer)
  if seq ~= tonumber(last_seq) then redis.call('HSET', META, 'seq', seq, 'last_us', now_us) end
  for topic in pairs(rings) do redis.call('PUBLISH', BELL .. topic, '') end
  return answer
end

-- Answer a list of items that were packed as arrays of `width` values.
local function answer_each(items, width, answer)
  local out = {}
  for i, item in ipairs(cmsgpack.unpack(items)) do out[i] = answer(unpack(item, 1, width)) end
  return finish(out)
end
