-- include: outcomes
-- What the moves that end a lease have in common.
local LEASED = {
  'state', 'token', 'deadline', 'version', 'drive', 'task', 'key', 'priority', 'delivery', 'attempts', 'fence',
  'worker', 'cancel_requested', 'reason', 'error', 'fingerprint', 'settled', 'retention_ms',
}

-- Ran out, or ends later than any lease may: then the clock was set back.
local function has_expired(deadline, lease_limit_ms)
  return deadline <= now or deadline > now + lease_limit_ms
end

-- The answer to a settlement that is refused: the old one, if it repeats what was done with this token.
local function refuse_or_repeat(job, token, move)
  -- The space before it keeps the end of a token from passing for the whole.
  local notes = ' ' .. (job.settled or '')
  local _, last = string.find(notes, ' ' .. token .. ':' .. move .. ':', 1, true)
  if not last then return refuse('lost', job.state) end
  return applied(string.match(notes, '^%S+', last + 1))
end

-- Lead a running job to `state`, with these changes to its record; false takes a field away.
local function end_lease(move, id, job, state, changes, front)
  for name, value in pairs(changes) do job[name] = value or nil end
  job.version = job.version + 1
  redis.call('ZREM', ACTIVE, id)
  append_of(move, id, job, 'active', state)
  changes.place = enter(id, job, state, front)
  changes.state, changes.version, changes.attempts = state, job.version, job.attempts
  changes.token, changes.deadline = false, false
  if state ~= 'pending' and state ~= 'delayed' then changes.ended_at = now end
  write(id, changes)
  ring_for(state)
  return applied(state)
end

-- The same by the word of the worker, noted so that a repeat gets the same answer.
local function settle(move, id, job, state, changes, note_limit, front)
  local notes = (job.settled or '') .. job.token .. ':' .. move .. ':' .. state .. ' '
  changes.settled = string.sub(notes, -note_limit)
  return end_lease(move, id, job, state, changes, front)
end
