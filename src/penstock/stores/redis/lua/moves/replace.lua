-- replace: pending / delayed → pending / delayed; new payload and visible_at
-- Called by enqueue.lua for a job that is debounced: id, its record, the new payload, when it is to become visible,
--   the new headers or nil.
-- Result: true.
-- Refusals: false.
-- include: shared/outcomes

local function replace(id, job, payload, visible_at, headers)
  if job[STATE] ~= 'pending' and job[STATE] ~= 'delayed' then return false end -- guard: state
  gather(set, PAYLOADS, id, payload)
  job[VISIBLE_AT], job[EXTRA].headers = visible_at, headers
  lead('replace', id, job, visible_at > now and 'delayed' or 'pending')
  notify_for(job[STATE])
  return true
end
