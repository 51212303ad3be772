-- unblock: blocked → pending / delayed / failed; its last awaited child must have ended; failed if one did without success and the policy says so
-- Arguments: the endings of children, each as the parent, the child's queue and id, its state or nil when it is gone,
--   and the number of the argument with its result or nil; the reason of a parent that fails; then the results.
-- Result, per ending: applied/<state of the parent>.
-- Refusals: missing; state, when the parent does not wait, or not for this child.
-- flags: allow-oom
-- include: shared/leases

local child_failed = ARGV[2]

-- What the ending means: it counts, the parent waits for a redrive of the child, or it fails with it. A child that is
-- gone will never be redriven.
local function verdict(state, policy)
  if state == 'completed' or policy == 'ignore' then return 'counts' end
  return policy == 'wait' and state and 'waits' or 'fails'
end

local function unblock(id, queue, child, state, result_at)
  local job = load(id)
  if not job then return refuse('missing') end
  if job[STATE] ~= 'blocked' then return refuse('state', job[STATE]) end -- guard: state
  local extra, ref = job[EXTRA], queue .. '/' .. child
  local packed = redis.call('HGET', CHILDREN .. id, ref)
  local known = packed and decode(packed)
  if not known or known[CHILD_IS_DONE] then return refuse('state', job[STATE]) end
  local meaning = verdict(state, extra.policy)
  redis.call('HSET', CHILDREN .. id, ref, encode_child(known[CHILD_NUMBER], meaning == 'counts', state or false))
  if result_at then redis.call('HSET', OUTCOMES .. id, ref, ARGV[result_at]) end
  if meaning == 'counts' then extra.left = extra.left - 1 end
  changed[id] = job
  if meaning == 'fails' then
    set_fault(id, job, child_failed, 'child ' .. ref .. ' ended without success')
    return end_lease('unblock', id, job, 'failed')
  end
  if extra.left > 0 then return applied('blocked') end
  job[VISIBLE_AT] = extra.run_at or now + extra.delay_ms
  return end_lease('unblock', id, job, job[VISIBLE_AT] > now and 'delayed' or 'pending')
end

return answer_each(ARGV[1], 5, 1, unblock)
