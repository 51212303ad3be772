-- Give parents that wait more children.
-- Arguments: the adoptions, each as the parent and its children, these each as queue and id.
-- Result, per adoption: applied/blocked.
-- Refusals: missing; state, when the parent does not wait.
-- flags: allow-oom
-- include: shared/outcomes

local function adopt(id, children)
  local job = load(id)
  if not job then return refuse('missing') end
  if job[STATE] ~= 'blocked' then return refuse('state', job[STATE]) end
  local number = redis.call('HLEN', CHILDREN .. id)
  for _, child in ipairs(children) do
    local entry = encode_child(number + 1, false, false)
    if redis.call('HSETNX', CHILDREN .. id, child[REF_QUEUE] .. '/' .. child[REF_ID], entry) == 1 then
      number, job[EXTRA].left = number + 1, job[EXTRA].left + 1
    end
  end
  changed[id] = job
  return applied('blocked')
end

return answer_each(ARGV[1], 2, 1, adopt)
