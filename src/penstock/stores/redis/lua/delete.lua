-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Arguments: the ids.
-- Result, per id: applied/<the state it was in>.
-- Refusals: missing; state, while it runs.
-- flags: allow-oom
-- include: removal

local gone, last = {}, nil

local function delete(id)
  local job = load(id, REMOVED)
  if not job then return refuse('missing') end
  if job.state == 'active' then return refuse('state', job.state) end -- guard: state
  remove(id, job)
  gone[#gone + 1], last = id, job
  return applied(job.state)
end

local out = {}
for i, id in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = delete(id) end
if #gone == 1 then
  last.version = last.version + 1
  append_of('delete', gone[1], last, last.state, last.state)
elseif #gone > 1 then
  append('delete', {jobs = gone, reason = DELETED})
end
return finish(out)
