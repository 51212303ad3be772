-- Replace the queue's declaration by what was agreed.
-- Arguments: the declaration that it was compared with, or nothing; the new one; 1 if no live job may be there; how
--   many keys to look at.
-- Result: written; changed, when another one stands there; live.
-- flags: allow-oom
-- include: outcomes
if (meta[7] or '') ~= ARGV[1] then return 'changed' end
if ARGV[3] == '1' and live_before() > 0 then return 'live' end
facts.declared = ARGV[2]
declared = cjson.decode(ARGV[2])
has_keys = declared.mode == 'keyed' or declared.mode == 'dynamic'
if ARGV[3] == '1' then
  -- Without live jobs only entries of jobs that are gone stand in the lists of the tiers.
  for tier = 0, 9 do redis.call('UNLINK', PENDING .. tier, GONE .. tier) end
end
facts.arrival_us = owed_at_most(declared.rate, tonumber(meta[8] or 0))
meta[13] = '0'
refresh_some(tonumber(ARGV[4]))
ring_for('pending')
return finish('written')
