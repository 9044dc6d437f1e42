-- Runs requests to several limiters each. It checks every limiter first and takes permits only if all grant the request.
-- A rejected request writes nothing.
--
-- KEYS    for each limiter of each combination, in order: its key, then the keys in which operators keep its limits
-- ARGV    for each combination: "take" or "peek"; how many of KEYS are its own; how many arguments follow; and for each of
--         its limiters
--           how many of KEYS hold its limits; the numbers that its code declares; now, the caller and the number of the
--           batch, as in transition.lua: the caller is the same for all parts of the call with this key, and the number is the
--           same for all parts of the combination with it
--           longest    the longest wait that is accepted, microseconds
--           late       how late the caller's own timer was, microseconds
--           optional   1: if this limiter rejects, the others are used as if it were absent
--           permits    a number for each policy
-- reply   for each combination "-" and the error, "+repeated" (the combination was run before, as in transition.lua), or "+"
--         and, separated by tabs: 1 if all limiters grant the request (and permits were taken from all), else 0; and for
--         each limiter, as in transition.lua, the last batch if it is not the one before this, and the numbers in force; then
--           1 if it alone would grant the request, 0 if not, 2 if the request may not wait either, 3 if it exceeds the
--           capacity; the wait; the policy that rejects or is slowest, and the quotas of all policies, in the form of
--           verbs.lua: after the take, if there was one; and the receipts, as for `reserve`

-- the states that this call has read, by their keys: each is read and written once, for any number of combinations
local contexts = {}

local function load()
--> load
end

local function save()
--> save
end

local function enter(context)
  key, first, base, now = context.key, context.first, context.base, context.now
  caller, batch_number, others = context.caller, context.batch_number, context.others
  paused_until, changed, in_force, settings = context.paused_until, context.changed, context.in_force, context.settings
  closed, notes, written_under = context.closed, context.notes, context.written_under
  count, algorithm, policy, state = context.count, context.algorithm, context.policy, context.state
  parked, elsewhere = context.parked, context.elsewhere
end

local function leave(context)
  context.paused_until, context.changed = paused_until, changed
end

local function write(context)
  if not context.changed then return end
  enter(context)
  save()
end

-- enters the state of the limiter with the next arguments; returns its context (nil if the combination was run before), the
-- number of its batch, and the start of its reply
local function open()
  local limits, of_key = number(), KEYS[key_at]
  local read_as, own = ARGV[position] .. "\n" .. ARGV[position + 1], ARGV[position + 3] + 0
  local context = contexts[of_key]
  -- a limiter that occurs twice in one combination is used at one instant: the clocks of its callers may differ
  if context and (context.read_as == read_as or context.last == last) then
    enter(context)
    context.last, position = last, position + 4
  else
    -- the state was read with other numbers, or at another time
    if context then write(context) end
    contexts[of_key] = nil
    key, first, batch_id_at = of_key, position, position + 2
    if load() then return nil end
    position = position + 2
    context = {
      read_as = read_as, last = last, key = key, first = first, base = base, now = now,
      caller = caller, batch_number = own, others = others, paused_until = paused_until, changed = changed,
      in_force = in_force, settings = settings, closed = closed, notes = notes,
      written_under = written_under, count = count, algorithm = algorithm, policy = policy, state = state,
      parked = parked, elsewhere = elsewhere,
    }
    contexts[of_key] = context
  end
  key_at = key_at + 1 + limits
  return context, own
end

-- runs the function for each policy of all versions, with its state's table and index in that
local function each_state(run)
  for i = 1, count do run(algorithm[i], state, i) end
  for _, version in ipairs(parked or {}) do
    for i = 1, version.count do run(version.algorithm[i], version.state, i) end
  end
end

local function dump()
  local value = ""
  each_state(function(kind, states, i) value = value .. kind.dump(states[i]) end)
  return { state = value, paused_until = paused_until, changed = changed }
end

local function restore(saved)
  local from = 1
  each_state(function(kind, states, i) states[i], from = kind.load(saved.state, from) end)
  paused_until, changed = saved.paused_until, saved.changed
end

-- takes permits from all limiters; a limiter that occurs twice is asked again before the second take
local function take_all(parts, is_twice)
  local before = {}
  for _, part in ipairs(parts) do
    local context = part.context
    enter(context)
    if is_twice then
      before[context] = before[context] or dump()
      if not ask(part) then
        for each, saved in pairs(before) do
          enter(each)
          restore(saved)
          leave(each)
        end
        return false
      end
    end
    if part.passes then part.receipts = take(part.at, part.permits) end
    leave(context)
  end
  return true
end

local function combination(verb)
  local parts, seen, passes, is_twice = {}, {}, true, false
  while position <= last do
    local context, own = open()
    if not context then return "repeated" end
    local longest, late, optional = number(), number(), number() == 1
    local part = {
      context = context, own = own, longest = longest, late = late, optional = optional, permits = amounts(),
    }
    parts[#parts + 1] = part
    if not ask(part) then passes = false end
    is_twice = is_twice or seen[context]
    seen[context] = true
  end
  local is_taken = verb == "take" and passes and take_all(parts, is_twice)
  if verb == "take" then passes = is_taken end
  local replies = { passes and "1" or "0" }
  for _, part in ipairs(parts) do
    local context = part.context
    -- the state is written with the number of the combination that changed it last
    if is_taken and part.passes then context.batch_number = part.own end
    enter(context)
    replies[#replies + 1] = in_force .. elsewhere .. notes
    local reply = part.fate .. " " .. text(part.wait) .. " " .. standing(part.slowest, part.open)
    replies[#replies + 1] = reply .. (is_taken and part.receipts or "")
  end
  return table.concat(replies, "\t")
end

local outcomes, next_key, next_arg = {}, 1, 1
while next_arg <= #ARGV do
  local verb, keys = ARGV[next_arg], ARGV[next_arg + 1]
  key_at, position, last = next_key, next_arg + 3, next_arg + 2 + ARGV[next_arg + 2]
  next_key, next_arg = next_key + keys, last + 1
  local ok, outcome = pcall(combination, verb)
  if type(outcome) == "table" then outcome = outcome.err end
  outcomes[#outcomes + 1] = (ok and "+" or "-") .. outcome
end
for _, context in pairs(contexts) do write(context) end
return outcomes
