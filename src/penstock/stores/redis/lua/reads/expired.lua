-- The leases that ran out, each as its id and record; 1 where keys take turns, else 0.
-- Arguments: how many at most; the longest lease.
-- flags: allow-oom,no-writes
-- include: shared/lanes
-- include: shared/expired
return {expired_leases(tonumber(ARGV[1]), tonumber(ARGV[2])), has_keys and 1 or 0}
