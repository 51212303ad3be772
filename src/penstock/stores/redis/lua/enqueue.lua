-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Arguments: the sorts of jobs, each as task, priority, options, max_attempts, retention_ms, key_held_ms; of every job
--   its id, nonce, the number of its sort, its idempotency key and digest or false, and false or what else it has:
--   delay_ms, run_at or nil, key or nil, and nil or the extra: unique as kind, rule and window, parents, awaits,
--   policy, schedule, instant; or, where all are of one sort and have nothing else, the ids and then the nonces; the
--   queues of the spawns; the mode that the caller says the queue is in, or nothing; then the payloads of the jobs and the bodies of the spawns, one argument each.
-- Result, per job, or once where it is the same for all: created/<state>; or of the job that stands for it:
--   held/<id>/<state or nothing>/<1 for the same payload, else 0>/<1 for replaced, else 0>.
-- Refusals: duplicate, when the id is another job's; mode, when the queue is in another; keyless; full.
-- include: replace
-- include: relays
-- include: fresh

local WIDTH = 6 -- values per job
local CREATED = {pending = 'created/pending', delayed = 'created/delayed', blocked = 'created/blocked'}
local held_kinds, payloads_here = {}, {}
local holders, worths, tills = {}, {}, {} -- of held keys: their jobs, what work that is, and how long an ended one holds
local is_other_mode = false -- than the one that the caller of this said
local given_here = {} -- keys that this call gave to jobs, as they are written

local function hold(key, held)
  local id, digest, till = string.match(held, '^(%S+) (%S+) ?(%S*)')
  holders[key], worths[key], tills[key] = id, digest, tonumber(till)
end

-- Fetch in one go what the jobs may meet.
local function prepare(items)
  local ids, keys, count, wanted = {}, {}, #items / WIDTH, 0
  for i = 1, count do
    local at = WIDTH * i - WIDTH + 1
    ids[i] = items[at]
    if items[at + 3] then
      wanted = wanted + 1
      keys[wanted] = items[at + 3]
    end
  end
  for first = 1, wanted, CHUNK do
    local last = math.min(first + CHUNK - 1, wanted)
    local held = redis.call('HMGET', HOLDERS, unpack(keys, first, last))
    for at = first, last do
      local key, holder = keys[at], held[at - first + 1]
      if holder then hold(key, holder) end
      if holder and not tills[key] then
        count = count + 1
        ids[count] = holders[key]
      end
    end
  end
  look_up(ids)
end

-- Who holds the key now, and for which work; a key whose time is over is nobody's.
local function holder_of(key)
  if given_here[key] then hold(key, given_here[key]) end
  local id, till = holders[key], tills[key]
  if not id or till and till <= now then return nil end
  -- Once its record is gone the id may be another job's.
  return id, worths[key], not till and state_of(id) or ''
end

-- The answer where another job stands for one.
local function stands(id, state, is_same, is_replaced)
  return 'held/' .. id .. '/' .. state .. (is_same and '/1' or '/0') .. (is_replaced and '/1' or '/0')
end

local WAITS = {pending = true, delayed = true, blocked = true}

local function keeps_away(rule, state, since_ms, window_ms)
  if rule == 'live' then return state == 'active' or WAITS[state] end
  if rule == 'throttle' then return since_ms < window_ms end
  return WAITS[state]
end

local function same_work(id, job, task, payload)
  local known = payloads_here[id] or redis.call('HGET', PAYLOADS, id)
  return job[TASK] == task and known == payload
end

-- What stands instead of a job that is not the first of its kind.
local function kept_away(unique, task, payload, visible_at)
  local kind, rule, window_ms = unpack(unique)
  local held = held_kinds[kind] or redis.call('HGET', KINDS, kind)
  if not held then return nil end
  local id, since = string.match(held, '^(%S+) (%S+)$')
  local since_ms, job = now - tonumber(since), load(id)
  local its = job and job[EXTRA] and job[EXTRA].unique
  -- Once its record is gone the id may be that of a job of another kind.
  if not its or its[1] ~= kind then
    return rule == 'throttle' and since_ms < window_ms and stands(id, '', false, false) or nil
  end
  if not keeps_away(rule, job[STATE], since_ms, window_ms) then return nil end
  local same = same_work(id, job, task, payload)
  local is_replaced = rule == 'debounce' and replace(id, job, payload, visible_at)
  if is_replaced then payloads_here[id] = payload end
  return stands(id, job[STATE], same, is_replaced)
end

local function enqueue(payload, at_door, id, nonce, sort, idempotency_key, digest, more)
  local delay_ms, run_at, key, extra = 0
  if more then delay_ms, run_at, key, extra = unpack(more, 1, 4) end
  -- Nearly all are new; all were looked up.
  local known = loaded[id] and load(id)
  if known then
    return known[NONCE] == nonce and 'created/' .. known[STATE] or refuse('duplicate', known[STATE])
  end
  if idempotency_key then
    local holder, worth, state = holder_of(idempotency_key)
    if holder then return stands(holder, state, worth == digest, false) end
  end
  if is_other_mode then return refuse('mode') end
  local visible_at = run_at or now + delay_ms
  local kept = extra and extra.unique and kept_away(extra.unique, sort[1], payload, visible_at)
  if kept then return kept end
  if has_keys and not key then return refuse('keyless') end
  -- Others of its flow take up room while they wait: what was let in with them must not stay outside.
  local is_let_in = not at_door and extra and (extra.parents or extra.awaits)
  if declared.max_length and not is_let_in and room() < 1 then return refuse('full') end

  local state = extra and extra.awaits and 'blocked' or visible_at > now and 'delayed' or 'pending'
  if state == 'pending' and not extra then
    enter_fresh(id, nonce, sort, idempotency_key, key, payload)
  else
    local task, priority, options, max_attempts, retention_ms, key_held_ms = unpack(sort, 1, 6)
    extra = extra or {}
    if extra.awaits then
      extra.delay_ms, extra.run_at, extra.left = delay_ms, run_at, #extra.awaits
      for number, child in ipairs(extra.awaits) do
        gather(set, CHILDREN .. id, child[1] .. '/' .. child[2], cmsgpack.pack({number, false, false}))
      end
      extra.awaits = nil
    end
    local job = {
      state, 1, 0, task, priority, key or false, 1, 0, 0, 0, false, false, false, false,
      state == 'delayed' and visible_at, false, false, false, false, false, false, false, now, retention_ms,
      idempotency_key or false, key_held_ms, nonce, options, next(extra) and extra or false,
    }
    append_enqueue(id, job, max_attempts)
    enter(id, job)
    loaded[id], changed[id] = job, job
    if extra.unique then
      held_kinds[extra.unique[1]] = id .. ' ' .. int(now)
      gather(set, KINDS, extra.unique[1], held_kinds[extra.unique[1]])
      payloads_here[id] = payload
    end
    gather(set, PAYLOADS, id, payload)
    gather(added, JOBS, score(now), id)
  end
  if idempotency_key then
    -- A key that was let go of has its time there.
    if tills[idempotency_key] then gather(removed, FREED, idempotency_key) end
    given_here[idempotency_key] = id .. ' ' .. digest
    gather(set, HOLDERS, idempotency_key, given_here[idempotency_key])
  end
  touch(key)
  if not rings.ready then ring_for(state) end
  return CREATED[state]
end

-- Take in jobs of which there is nothing else to say.
local function enqueue_plain(sort, ids, nonces, first, at_door)
  local out, ARGV = {}, ARGV
  look_up(ids)
  for i = 1, #ids do out[i] = enqueue(ARGV[first + i - 1], at_door, ids[i], nonces[i], sort) end
  return out
end

-- Take in jobs; their payloads begin at the argument `first`.
local function enqueue_all(sorts, items, nonces, first, at_door)
  if nonces then return enqueue_plain(sorts[1], items, nonces, first, at_door) end
  local out = {}
  prepare(items)
  for i = 0, #items / WIDTH - 1 do
    local at = WIDTH * i
    local id, nonce, sort = items[at + 1], items[at + 2], sorts[items[at + 3]]
    out[i + 1] = enqueue(ARGV[first + i], at_door, id, nonce, sort, items[at + 4], items[at + 5], items[at + 6])
  end
  return out
end

-- main
-- include: claim
local function once(answers)
  for i = 2, #answers do
    if answers[i] ~= answers[1] then return answers end
  end
  return {answers[1]}
end

local HANDED_BYTES = 65536 -- what a worker gets through its channel; more is left for it to fetch

-- Make the claim that stands, if there is one, for the only job of this call; where to send what to its worker.
local function hand_over(id, payload)
  local number, worker, lease_ms, token, channel, till, floor_us = note_of(meta[14])
  local _, _, _, _, _, held_until = note_of(meta[15])
  if not number or till <= now or held_until and held_until > now then return nil end
  if is_paused() or meta[7] or #payload > HANDED_BYTES then return nil end
  -- A worker that is gone no longer listens. This user may not be allowed to ask.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if listeners.err or listeners[2] == 0 then return nil end
  -- Its own for every job: after a failover the same note may stand there once more.
  token = string.sub(redis.sha1hex(token .. id), 1, #token)
  local record = lease(id, seq, worker, token, lease_ms, floor_us or 0)
  pushed, rings.ready = {}, nil
  facts.standing, facts.handed = '', cmsgpack.pack({number, worker, channel, id, token, now + lease_ms})
  return channel, string.format('%s %s %d ', number, id, #record) .. record .. payload
end

local given, spawn_queues, known = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2]), seq
is_other_mode = ARGV[3] ~= '' and ARGV[3] ~= (declared.mode or 'global')
local out = enqueue_all(given[1], given[2], given[3], 4, #spawn_queues > 0)
-- A repeated call finds its jobs there, and its spawns were written with them.
if seq > known then
  for i, queue in ipairs(spawn_queues) do relay(queue, 'job', ARGV[3 + #out + i]) end
end
local channel, message
if #out == 1 and #spawn_queues == 0 and seq > known and out[1] == 'created/pending' then
  channel, message = hand_over(given[2][1], ARGV[4])
end
finish()
-- Where this may not be sent, the worker asks for it.
local sent = channel and redis.pcall('PUBLISH', channel, message)
if type(sent) == 'table' then redis.call('PUBLISH', BELL .. 'ready', '') end
return once(out)
