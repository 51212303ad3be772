-- Let a running job add children under its lease: its parents will wait for them too.
-- Arguments: id; token; the spawned jobs, each as queue and id; then their bodies, one argument each.
-- Result: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: shared/relays

local id, token, spawns = ARGV[1], ARGV[2], decode(ARGV[3])
local FIRST_BODY = 4

local job = load(id)
if not job then return refuse('lost') end
if job[STATE] ~= 'active' or job[TOKEN] ~= token then return refuse('lost', job[STATE]) end
-- Carried over in this order: the parents know of the children before these can end.
for _, parent in ipairs(job[EXTRA] and job[EXTRA].parents or {}) do
  relay(parent[REF_QUEUE], 'adoption', encode({parent[REF_ID], spawns}))
end
for i, spawn in ipairs(spawns) do relay(spawn[REF_QUEUE], 'job', ARGV[FIRST_BODY + i - 1]) end
return finish(applied('active', job[CANCEL_REQUESTED]))
