-- Replace the queue's declaration by what was agreed.
-- Arguments: the declaration that it was compared with, or nothing; the new one; 1 if no live job may be there; how
--   many keys to look at; the lowest tier and the highest.
-- Result: written; changed, when another one stands there; live.
-- flags: allow-oom
-- include: shared/outcomes
local known, new, has_other_mode, refresh_limit = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local lowest, highest = tonumber(ARGV[5]), tonumber(ARGV[6])
if (meta[META_DECLARED] or '') ~= known then return 'changed' end
if has_other_mode and live_before() > 0 then return 'live' end
meta_updates.declared = new
declared = cjson.decode(new)
has_keys = declared.mode == 'keyed' or declared.mode == 'dynamic'
if has_other_mode then
  -- Without live jobs only entries of jobs that are gone stand in the lists of the tiers.
  for tier = lowest, highest do redis.call('UNLINK', PENDING .. tier, GONE .. tier) end
end
meta_updates.arrival_us = owed_at_most(declared.rate, tonumber(meta[META_ARRIVAL_US] or 0))
meta[META_REFRESHING] = '0'
refresh_some(refresh_limit)
notify_for('pending')
return finish('written')
