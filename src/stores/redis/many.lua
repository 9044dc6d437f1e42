-- One call for several limiters, each by `run`: the hot path if there is one, else transition.lua from `--> load` on.
--
-- ARGV    for each group of keys with equal arguments: how many keys, how many arguments, these, and each key's batch
-- reply   for each key the transition's reply, or "-" and the error for this key

local transition
-- runs once in a call, for the first key that the hot path does not answer
local function make()
--> made
  return function()
--> run
  end
end

local function run()
--> key
  transition = transition or make()
  return transition()
end

-- `shared`: the last key of the group with the current arguments; `position`: the next argument to read
local outcomes, at, shared, position = {}, 1, 0, 1

-- runs the keys from `at` on, up to the first error
local function run_all()
  while at <= #KEYS do
    if at > shared then
      shared, first, last = shared + ARGV[position], position + 2, position + 1 + ARGV[position + 1]
      position = last + 1
--> arguments
    end
    key, batch_id_at, position = KEYS[at], position, position + 2
    outcomes[at] = run()
    at = at + 1
  end
end

while at <= #KEYS do
  local ok, fault = pcall(run_all)
  if not ok then
    outcomes[at] = "-" .. (type(fault) == "table" and fault.err or fault)
    at = at + 1
  end
end
return outcomes
