-- Commands that only read, with nothing in between: for servers that let no transaction begin at their maxmemory.
-- Arguments: the commands, each with its own arguments as text.
-- Result: the answer of each.
-- flags: allow-oom,no-writes
local answers = {}
for number, command in ipairs(cmsgpack.unpack(ARGV[1])) do answers[number] = redis.call(unpack(command)) end
return answers
