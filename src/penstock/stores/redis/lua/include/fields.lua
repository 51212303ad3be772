-- A record is an array of these, in the order of records.py; false is None. New fields come at the end: scripts of
-- another version carry along what they do not know.
local STATE, VERSION, PLACE, TASK, PRIORITY, KEY, DRIVE, DELIVERY, ATTEMPTS, FENCE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local TOKEN, DEADLINE, WORKER, CANCEL, VISIBLE_AT, LAST_DELAY_MS, REASON, ERROR = 11, 12, 13, 14, 15, 16, 17, 18
local FINGERPRINT, ENDED_AT, PROGRESS_AT, SETTLED, ENQUEUED_AT, RETENTION_MS = 19, 20, 21, 22, 23, 24
local IDEMPOTENCY_KEY, KEY_HELD_MS, NONCE, OPTIONS, EXTRA = 25, 26, 27, 28, 29
-- The second version of a record, with 30 values: only while a lease is held.
local LEASE_MS = 30
