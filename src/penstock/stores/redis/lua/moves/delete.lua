-- delete: blocked / pending / delayed / completed / failed / dead / cancelled → gone; by an operator; its idempotency key stays until its time
-- Arguments: the ids, each in an array of its own; the reason that the event gives.
-- Result, per id: applied/<the state it was in>.
-- Refusals: missing; state, while it runs.
-- flags: allow-oom
-- include: shared/removal

local reason = ARGV[2]
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

local items, ids, out = decode(ARGV[1]), {}, {}
for i, item in ipairs(items) do ids[i] = item[1] end
look_up(ids)
for i, id in ipairs(ids) do out[i] = delete(id) end
if #gone == 1 then append_deletion(reason, gone[1], last) elseif #gone > 1 then append_removal('delete', reason, gone) end
return finish(out)
