-- One call for several limiters, each by `run`: the hot path where there is one, else frame.lua from `--> load` on.
--
-- ARGV    for each run of keys with equal arguments: how many keys, how many arguments, these, and of each key its trip
-- reply   for each key the frame's reply, or "-" and what went wrong with this one

local outcomes, keys, position = {}, 0, 1
while keys < #KEYS do
  local from = keys + 1
  keys, first, last = keys + ARGV[position], position + 2, position + 1 + ARGV[position + 1]
  position = last + 1
--> arguments
  for k = from, keys do
    key, trip, position = KEYS[k], position, position + 2
    local ok, outcome = pcall(run)
    if type(outcome) == "table" then outcome = outcome.err end
    outcomes[k] = ok and outcome or "-" .. outcome
  end
end
return outcomes
