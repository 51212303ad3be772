-- include: shared/outcomes
-- What waits to be carried over to other queues: endings of children, new jobs, more children.
local relayed = tonumber(meta[META_RELAYED] or 0)

local function relay(queue, kind, body, result)
  relayed = relayed + 1
  meta_updates.relayed = relayed
  local entry = {int(relayed) .. '-0', 'queue', queue, 'kind', kind, 'body', body}
  if result then
    entry[#entry + 1] = 'result'
    entry[#entry + 1] = result
  end
  relay_entries[#relay_entries + 1] = entry
end

-- Leave word of an ending for every job that waits for this one; `state` is false when the record is gone.
local function tell_parents(id, extra, state, result)
  for _, parent in ipairs(extra and extra.parents or {}) do
    relay(parent[REF_QUEUE], 'ending', encode({parent[REF_ID], id, state}), result)
  end
end
