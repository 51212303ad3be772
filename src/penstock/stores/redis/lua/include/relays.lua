-- include: outcomes
-- What waits to be carried over to other queues: endings of children, new jobs, more children.
local relayed = tonumber(meta[12] or 0)

local function relay(queue, kind, body, result)
  relayed = relayed + 1
  facts.relayed = relayed
  local entry = {int(relayed) .. '-0', 'queue', queue, 'kind', kind, 'body', body}
  if result then entry[8], entry[9] = 'result', result end
  carried[#carried + 1] = entry
end

-- Leave word of an ending for every job that waits for this one; `state` is false when the record is gone.
local function tell_parents(id, extra, state, result)
  for _, parent in ipairs(extra and extra.parents or {}) do
    relay(parent[1], 'ending', cmsgpack.pack({parent[2], id, state}), result)
  end
end
