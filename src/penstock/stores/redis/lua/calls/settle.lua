-- Settlements of all kinds in one call, in the order given and at one time.
-- Arguments: the settlements, each as its move and the arguments of that move; how many characters of notes a record
--   keeps; the reason of a cancelled job; then the results of completed jobs, one argument each.
-- Result, per settlement: that of its move.
-- flags: allow-oom
-- include: moves/complete
-- include: moves/fail
-- include: moves/retry
-- include: moves/bury
-- include: moves/snooze
-- include: moves/release

local MOVES = {
  complete = complete, fail = fail, retry = retry, bury = bury, snooze = snooze, release = release,
}

return answer_each(ARGV[1], 8, 2, function(move, ...) return MOVES[move](...) end)
