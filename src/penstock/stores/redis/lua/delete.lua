-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Arguments: the ids, each in an array of its own; the reason that the event gives.
-- Result, per id: applied/<the state it was in>.
-- Refusals: missing; state, while it runs.
-- flags: allow-oom
-- include: removal

local gone, last = {}, nil

local function delete(id)
  local job = load(id)
  if not job then return refuse('missing') end
  if job[STATE] == 'active' then return refuse('state', job[STATE]) end -- guard: state
  remove(id, job)
  touch(job[KEY])
  gone[#gone + 1], last = id, job
  return applied(job[STATE])
end

local items, ids, out = cmsgpack.unpack(ARGV[1]), {}, {}
for i, item in ipairs(items) do ids[i] = item[1] end
look_up(ids)
for i, id in ipairs(ids) do out[i] = delete(id) end
if #gone > 0 then append_removal('delete', ARGV[2], gone, #gone == 1 and last) end
return finish(out)
