-- include: shared/relays
-- What the moves that end a lease have in common.

-- Ran out, or lies further ahead than it was claimed for: then the clock was set back.
local function has_expired(job, lease_limit_ms)
  return job[DEADLINE] <= now or job[DEADLINE] > now + (job[LEASE_MS] or lease_limit_ms) + CLOCK_STEP_MS
end

-- The answer to a settlement that is refused: the old one, if it repeats what was done with this token.
local function refuse_or_repeat(job, token, move)
  if not job then return refuse('lost') end
  -- The space before it keeps the end of a token from passing for the whole.
  local notes = ' ' .. (job[SETTLED] or '')
  local _, last = string.find(notes, ' ' .. token .. ':' .. move .. ':', 1, true)
  if not last then return refuse('lost', job[STATE]) end
  return applied(string.match(notes, '^%S+', last + 1))
end

-- Of an error, the record keeps the first line, which events carry; the rest stands apart.
local function set_fault(id, job, reason, line, rest, fingerprint)
  if rest then
    gather(set, ERRORS, id, rest)
  elseif job[ERROR] then
    gather(unset, ERRORS, id)
  end
  job[REASON], job[ERROR], job[FINGERPRINT] = reason or false, line or false, fingerprint or false
end

-- An attempt came to nothing.
local function count_fault(id, job, reason, line, rest, fingerprint)
  job[ATTEMPTS] = job[ATTEMPTS] + 1
  set_fault(id, job, reason, line, rest, fingerprint)
end

-- A handler was found for the job: since when there was none is over.
local function forget_unhandled(job)
  local extra = job[EXTRA]
  if extra and extra.unhandled_since then
    extra.unhandled_since = nil
    job[EXTRA] = next(extra) and extra or false
  end
end

-- What a record keeps of how its leases ended: a repeat gets the same answer.
local function noted(notes, token, move, state, note_limit)
  return string.sub((notes or '') .. token .. ':' .. move .. ':' .. state .. ' ', -note_limit)
end

-- Lead a running job to `state`.
local function end_lease(move, id, job, state, front)
  if state ~= 'pending' and state ~= 'delayed' then
    job[ENDED_AT] = now
    tell_parents(id, job[EXTRA], state)
  end
  lead(move, id, job, state, front)
  notify_for(state)
  return applied(state)
end

-- The same by the word of the worker.
local function settle(move, id, job, state, note_limit, front)
  job[SETTLED] = noted(job[SETTLED], job[TOKEN], move, state, note_limit)
  return end_lease(move, id, job, state, front)
end
