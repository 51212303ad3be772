-- Let a running job add children under its lease: its parents will wait for them too.
-- Arguments: id; token; the spawned jobs, each as queue and id; then their bodies, one argument each.
-- Result: applied/active, with /cancel when that was asked for.
-- Refusals: lost.
-- flags: allow-oom
-- include: relays

local job, spawns = load(ARGV[1]), cmsgpack.unpack(ARGV[3])
if not job then return refuse('lost') end
if job[STATE] ~= 'active' or job[TOKEN] ~= ARGV[2] then return refuse('lost', job[STATE]) end
-- Carried over in this order: the parents know of the children before these can end.
for _, parent in ipairs(job[EXTRA] and job[EXTRA].parents or {}) do
  relay(parent[1], 'adoption', cmsgpack.pack({parent[2], spawns}))
end
for i, spawn in ipairs(spawns) do relay(spawn[1], 'job', ARGV[3 + i]) end
return finish(applied('active', job[CANCEL]))
