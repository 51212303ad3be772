-- The keys of the queue, in the order of keys.py. Those that end in a colon are completed here.
local META, EVENTS, RECORDS, PAYLOADS, RESULTS, ERRORS, PROGRESS, JOBS = unpack(KEYS, 1, 8)
local BLOCKED, DELAYED, ACTIVE, PRUNABLE, HOLDERS, FREED, KINDS, WINDOWS = unpack(KEYS, 9, 16)
local LANES, READY, HELD, COOLING, RELAYS, SCHEDULES, BODIES, DUE = unpack(KEYS, 17, 24)
local READERS, QUARANTINE, PENDING, GONE, ENDED, CHILDREN, OUTCOMES, BELL = unpack(KEYS, 25, 32)
