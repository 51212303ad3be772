-- The leases that ran out.
-- Arguments: how many at most, the longest lease.
-- flags: no-writes
-- include: expired
return expired_leases(tonumber(ARGV[1]), tonumber(ARGV[2]))
