-- enqueue: nothing → pending / delayed / blocked; the id must be free, or hold the same nonce; a held idempotency key gives its job
-- Arguments: the templates of jobs, each as task, priority, options, max_attempts, retention_ms, key_held_ms; of every
--   job its id, nonce, the number of its template, its idempotency key and digest or false, and false or the rest:
--   delay_ms, run_at or nil, key or nil, and nil or the extra: unique as kind, rule and window, parents, awaits,
--   policy, schedule, instant; or, where all have one template and no rest, the ids and then the nonces; the
--   queues of the spawns; the mode that the caller says the queue is in, or nothing; then the payloads of the jobs and the bodies of the spawns, one argument each.
-- Result, per job, or once where it is the same for all: created/<state>; or of the job that stands for it:
--   held/<id>/<state or nothing>/<1 for the same payload, else 0>/<1 for replaced, else 0>.
-- Refusals: duplicate, when the id is another job's; mode, when the queue is in another; keyless; full.
-- include: moves/replace
-- include: shared/relays
-- include: shared/fresh

local CREATED = {pending = 'created/pending', delayed = 'created/delayed', blocked = 'created/blocked'}
local held_kinds, payloads_here = {}, {}
local holders, digests, tills = {}, {}, {} -- of held keys: their jobs, the digests of their work, and how long an ended one holds
local is_other_mode = false -- than the one that the caller of this said
local held_here = {} -- keys that this call gave to jobs, as they are written

local function hold(key, held)
  local id, digest, till = string.match(held, '^(%S+) (%S+) ?(%S*)')
  holders[key], digests[key], tills[key] = id, digest, tonumber(till)
end

-- Fetch in one go what the jobs may meet.
local function prepare(items)
  local ids, keys, count, wanted = {}, {}, #items / ITEM_WIDTH, 0
  for i = 1, count do
    local before = ITEM_WIDTH * (i - 1)
    ids[i] = items[before + ITEM_ID]
    local key = items[before + ITEM_IDEMPOTENCY_KEY]
    if key then
      wanted = wanted + 1
      keys[wanted] = key
    end
  end
  for first = 1, wanted, COMMAND_VALUES do
    local last = math.min(first + COMMAND_VALUES - 1, wanted)
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
  if held_here[key] then hold(key, held_here[key]) end
  local id, till = holders[key], tills[key]
  if not id or till and till <= now then return nil end
  -- Once its record is gone the id may be another job's.
  return id, digests[key], not till and state_of(id) or ''
end

-- The answer where another job stands for one.
local function held_answer(id, state, is_same, is_replaced)
  return 'held/' .. id .. '/' .. state .. (is_same and '/1' or '/0') .. (is_replaced and '/1' or '/0')
end

local WAITS = {pending = true, delayed = true, blocked = true}

-- A job that came in more than a minute from now came before the clock was set back.
local function is_throttled(rule, since_ms, window_ms)
  return rule == 'throttle' and -CLOCK_STEP_MS <= since_ms and since_ms < window_ms
end

local function keeps_away(rule, state, since_ms, window_ms)
  if rule == 'live' then return state == 'active' or WAITS[state] end
  if rule == 'throttle' then return is_throttled(rule, since_ms, window_ms) end
  return WAITS[state]
end

local function same_work(id, job, task, payload)
  local known = payloads_here[id] or redis.call('HGET', PAYLOADS, id)
  return job[TASK] == task and known == payload
end

-- What stands instead of a job that is not the first of its kind.
local function kept_away(extra, task, payload, visible_at)
  local unique = extra.unique
  local kind, rule, window_ms = unique[UNIQUE_KEY], unique[UNIQUE_RULE], unique[UNIQUE_WINDOW_MS]
  local held = held_kinds[kind] or redis.call('HGET', KINDS, kind)
  if not held then return nil end
  local id, since = string.match(held, '^(%S+) (%S+)$')
  local since_ms, job = now - tonumber(since), load(id)
  local its = job and job[EXTRA] and job[EXTRA].unique
  -- Once its record is gone the id may be that of a job of another kind.
  if not its or its[UNIQUE_KEY] ~= kind then
    return is_throttled(rule, since_ms, window_ms) and held_answer(id, '', false, false) or nil
  end
  if not keeps_away(rule, job[STATE], since_ms, window_ms) then return nil end
  local same = same_work(id, job, task, payload)
  local is_replaced = rule == 'debounce' and replace(id, job, payload, visible_at, extra.headers)
  if is_replaced then payloads_here[id] = payload end
  return held_answer(id, job[STATE], same, is_replaced)
end

-- The rest of an item: what few jobs have.
local function decode_rest(rest)
  if not rest then return 0 end
  return unpack(rest, 1, 4)
end

local function key_of_item(items, before)
  local _, _, key = decode_rest(items[before + ITEM_REST])
  return key
end

-- `has_spawns`: the job comes with all others of its flow.
local function enqueue(payload, has_spawns, id, nonce, template, idempotency_key, digest, rest)
  local delay_ms, run_at, key, extra = decode_rest(rest)
  -- Nearly all are new; all were looked up.
  local known = loaded[id] and load(id)
  if known then
    return known[NONCE] == nonce and 'created/' .. known[STATE] or refuse('duplicate', known[STATE])
  end
  if idempotency_key then
    local holder, held_digest, state = holder_of(idempotency_key)
    if holder then return held_answer(holder, state, held_digest == digest, false) end
  end
  if is_other_mode then return refuse('mode') end
  local visible_at = run_at or now + delay_ms
  local kept = extra and extra.unique and kept_away(extra, template[TEMPLATE_TASK], payload, visible_at)
  if kept then return kept end
  if has_keys and not key then return refuse('keyless') end
  -- Others of its flow take up room while they wait: what was let in with them must not stay outside.
  local is_let_in = not has_spawns and extra and (extra.parents or extra.awaits)
  if declared.max_length and not is_let_in and room() < 1 then return refuse('full') end

  local state = extra and extra.awaits and 'blocked' or visible_at > now and 'delayed' or 'pending'
  if state == 'pending' and not extra then
    enter_fresh(id, nonce, template, idempotency_key, key, payload)
  else
    extra = extra or {}
    if extra.awaits then
      extra.delay_ms, extra.run_at, extra.left = delay_ms, run_at, #extra.awaits
      for number, child in ipairs(extra.awaits) do
        gather(set, CHILDREN .. id, child[REF_QUEUE] .. '/' .. child[REF_ID], encode_child(number, false, false))
      end
      extra.awaits = nil
    end
    local job = new_record(template, nonce, idempotency_key, key, next(extra) and extra)
    job[STATE], job[VISIBLE_AT] = state, state == 'delayed' and visible_at
    append_enqueue(id, job, template[TEMPLATE_MAX_ATTEMPTS])
    enter(id, job)
    loaded[id], changed[id] = job, job
    if extra.unique then
      held_kinds[extra.unique[UNIQUE_KEY]] = id .. ' ' .. int(now)
      gather(set, KINDS, extra.unique[UNIQUE_KEY], held_kinds[extra.unique[UNIQUE_KEY]])
      payloads_here[id] = payload
    end
    gather(set, PAYLOADS, id, payload)
    gather(added, JOBS, score(now), id)
  end
  if idempotency_key then
    -- A key that was let go of has its time there.
    if tills[idempotency_key] then gather(removed, FREED, idempotency_key) end
    held_here[idempotency_key] = id .. ' ' .. digest
    gather(set, HOLDERS, idempotency_key, held_here[idempotency_key])
  end
  touch(key)
  if not topics.ready then notify_for(state) end
  return CREATED[state]
end

-- Take in jobs of which there is nothing else to say.
local function enqueue_plain(template, ids, nonces, first, has_spawns)
  local out, ARGV = {}, ARGV
  look_up(ids)
  for i = 1, #ids do out[i] = enqueue(ARGV[first + i - 1], has_spawns, ids[i], nonces[i], template) end
  return out
end

-- Take in jobs; their payloads begin at the argument `first`.
local function enqueue_all(templates, items, nonces, first, has_spawns)
  if nonces then return enqueue_plain(templates[1], items, nonces, first, has_spawns) end
  local out = {}
  prepare(items)
  for i = 0, #items / ITEM_WIDTH - 1 do
    local before = ITEM_WIDTH * i
    out[i + 1] = enqueue(
      ARGV[first + i], has_spawns, items[before + ITEM_ID], items[before + ITEM_NONCE],
      templates[items[before + ITEM_TEMPLATE]], items[before + ITEM_IDEMPOTENCY_KEY], items[before + ITEM_DIGEST],
      items[before + ITEM_REST]
    )
  end
  return out
end

-- main
local function once(answers)
  for i = 2, #answers do
    if answers[i] ~= answers[1] then return answers end
  end
  return {answers[1]}
end

local FIRST_PAYLOAD = 4
local request, spawn_queues, mode = decode(ARGV[1]), decode(ARGV[2]), ARGV[3]
local templates, items, nonces = unpack(request, 1, 3)
local known = seq
is_other_mode = mode ~= '' and mode ~= (declared.mode or 'global')
local out = enqueue_all(templates, items, nonces, FIRST_PAYLOAD, #spawn_queues > 0)
-- A repeated call finds its jobs there, and its spawns were written with them.
if seq > known then
  for i, queue in ipairs(spawn_queues) do relay(queue, 'job', ARGV[FIRST_PAYLOAD + #out + i - 1]) end
end
finish()
return once(out)
