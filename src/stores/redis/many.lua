-- One call for several limiters, each by `run`: the hot path where there is one, else frame.lua from `--> load` on.
--
-- ARGV    for each run of keys with equal arguments: how many keys, how many arguments, and these
-- reply   for each key the frame's reply, or "-" and what went wrong with this one

local outcomes, keys = {}, 0
last = 0
while keys < #KEYS do
  local from = keys + 1
  keys, first, last = keys + ARGV[last + 1], last + 3, last + 2 + ARGV[last + 2]
--> arguments
  for k = from, keys do
    key = KEYS[k]
    local ok, outcome = pcall(run)
    if type(outcome) == "table" then outcome = outcome.err end
    outcomes[k] = ok and outcome or "-" .. outcome
  end
end
return outcomes
