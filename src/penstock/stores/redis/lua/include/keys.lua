-- The keys of the queue, in the order of keys.py. Those that end in a colon are completed here.
local META, EVENTS, JOBS, DELAYED, ACTIVE, PRUNABLE, HOLDERS, FREED = unpack(KEYS, 1, 8)
local JOB, PENDING, GONE, ENDED, BELL = unpack(KEYS, 9, 13)
