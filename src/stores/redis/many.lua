-- One call for several limiters, each by `run`: frame.lua from `--> load` on.
--
-- ARGV    for each key how many arguments are its own, and these
-- reply   for each key "+" and the frame's reply, or "-" and what went wrong with this one

local outcomes = {}
last = 0
for k = 1, #KEYS do
  key, first, last = KEYS[k], last + 2, last + 1 + ARGV[last + 1]
  local ok, outcome = pcall(run)
  if type(outcome) == "table" then outcome = outcome.err end
  outcomes[k] = (ok and "+" or "-") .. outcome
end
return outcomes
