"""The scripts as they wrote the log before: an entry for each event, without a checksum."""

from penstock.stores.redis.scripts import loaded_sources

_SINGLE = """
-- include: shared/codec
local runs, last_run = {}, false

local function append(event)
  seq = seq + 1
  last_run = {count = 0}
  runs[#runs + 1] = {first = seq, packed = encode_event(event)}
end

local function join_run() error('there is no run to join') end
local function vary_field() error('there is no run to join') end

local function write_runs()
  for _, each in ipairs(runs) do redis.call('XADD', EVENTS, int(each.first) .. '-0', 'e', each.packed) end
  runs, last_run = {}, false
end
"""


def before_runs() -> dict[str, str]:
    """The sources with the log of before."""
    return {**loaded_sources(), "shared/runs.lua": _SINGLE}
